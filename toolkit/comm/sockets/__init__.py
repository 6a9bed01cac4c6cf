"""Groups of processes over encrypted sockets, without an MPI library."""
