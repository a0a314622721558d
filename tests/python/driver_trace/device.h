// A device whose memory is a number in a file that every process of a test maps.
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

// Of `used`, `others` belongs to another process; `intrudes` is what that one takes during the next allocation. The list of processes has
// `contexts` of ours, whose number is `shift` more than here.
typedef struct { _Atomic long used, calls, others, intrudes, contexts, shift, lists; } Device;
enum { MIB = 1 << 20 };

static Device *device(void) {
    static Device *_Atomic mapped;
    if (!mapped) {
        int file = open(getenv("STUB_DEVICE"), O_RDWR | O_CLOEXEC);
        if (file < 0) abort();
        mapped = mmap(0, sizeof(Device), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        close(file);
    }
    return mapped;
}
