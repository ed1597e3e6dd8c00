// Preloaded into a server, it makes fsync and fdatasync take as long as a file says, in microseconds; no time without
// that file. The disk is left alone: whoever kills servers but no machine loses nothing that was written.
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static int wait_as_told(void)
{
	char text[32];
	int fd = open("/slowdisk", O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	ssize_t n = read(fd, text, sizeof text - 1);
	close(fd);
	text[n > 0 ? n : 0] = 0;
	long us = atol(text);
	struct timespec left = {us / 1000000, us % 1000000 * 1000};
	while (nanosleep(&left, &left) && errno == EINTR)
		;
	return 0;
}

int fsync(int fd)
{
	(void)fd;
	return wait_as_told();
}

int fdatasync(int fd)
{
	(void)fd;
	return wait_as_told();
}
