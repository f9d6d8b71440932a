/* Opens the driver library at path (a name or a file). 0: open and initialised; above 0: the driver's error; -1: why says it. */
int quire_libcuda_open(const char *path, char *why, int size);
