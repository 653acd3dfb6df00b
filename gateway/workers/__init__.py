"""Several processes behind one port, for machines with several processors.

A parent opens the listening sockets and starts the workers, which all accept from these very sockets. So no option of the
operating system that only some have is needed, what waits in a queue outlives a worker that dies, and a successor can be handed the
sockets. A conversation lives in one worker, decided by a hash of whose it is and how it begins; a worker that gets a turn of
another one relays it to there, over a unix socket that only these processes can open.
"""
