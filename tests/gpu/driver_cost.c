// For driver_cost.py: times calls of two functions in turns and, as a preloaded library, counts which functions of the driver a process calls.
// It uses no header and is linked with no library, so that a bare compiler can build it. x86-64 only.
typedef unsigned long word;
typedef int (*Call)(word, word, word, word, word, word, word, word, word, word, word, word);
#define EXPORTED __attribute__((visibility("default")))

extern int clock_gettime(int clock, long *time);
extern void *dlvsym(void *handle, const char *name, const char *version);
extern int strncmp(const char *one, const char *other, word bytes);
extern char *strncpy(char *to, const char *from, word bytes);

static word now(void) {
    long time[2];
    clock_gettime(1, time);
    return time[0] * 1000000000ul + time[1];
}

static int make(Call call, const word *a) { return call(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11]); }

// A block is `count` calls of one of two functions, then `wait`, where there is one. Blocks alternate: one, other, other, one, ... The calls of a
// block take the arguments in turns, of which there are `kinds`, a power of two. Where there is a second pair of functions, each call is followed by
// one of them, which is given what the first argument of the call points to, and its last argument. Before each call, `walked` bytes are read,
// so that the caches hold other things; this is not timed. `calls` and `whole` are nanoseconds of the calls, without and with the wait, in the
// order one, other, one, other. The result is the number of calls that failed.
EXPORTED word take_turns(const Call *functions, const Call *seconds, Call wait, const word (*arguments)[12], word kinds, word count, word blocks,
                         const volatile char *walk, word walked, word *calls, word *whole) {
    word failed = 0;
    for (word block = 0; block < 2 * blocks; block++) {
        word which = (block ^ block >> 1) & 1, place = (block & ~1ul) | which;
        Call function = functions[which], second = seconds ? seconds[which] : 0;
        word begin = now(), inside = 0;
        for (word i = 0; i < count; i++) {
            const word *given = arguments[i & (kinds - 1)];
            for (word byte = 0; byte < walked; byte += 64) walk[byte];
            word start = walked ? now() : 0;
            failed += make(function, given) != 0;
            if (second) {
                word last[12] = {*(word *)given[0], given[11]};
                failed += make(second, last) != 0;
            }
            if (walked) inside += now() - start;
        }
        word end = now();
        if (wait) failed += make(wait, arguments[0]) != 0;
        calls[place] = walked ? inside : end - begin;
        whole[place] = now() - begin;
    }
    return failed;
}

// The counter. Each function that is looked up gets a jump of its own, which counts.
enum { SLOTS = 2048, NAME = 64 };
__attribute__((visibility("hidden"))) word real[SLOTS], counts[SLOTS], asked, next;
__attribute__((visibility("hidden"))) extern char jumps[];
static char names[SLOTS][NAME];
static word used;

__asm__(
    ".text\n.balign 32\n.hidden jumps\njumps:\n.set place, 0\n.rept 2048\n.balign 32\n"
    "lock incq counts + 8 * place(%rip)\njmp *real + 8 * place(%rip)\n.set place, place + 1\n.endr\n"
    // The C library looks at the caller of dlsym, so what is not ours has to reach it by a jump.
    ".globl dlsym\n.type dlsym, @function\ndlsym:\nlock incq asked(%rip)\n"
    "cmpq $0, next(%rip)\njne 1f\npush %rdi\npush %rsi\nsub $8, %rsp\ncall find_next\nadd $8, %rsp\npop %rsi\npop %rdi\n"
    "1: lea 1(%rdi), %rax\ncmp $1, %rax\njbe 2f\ntest %rsi, %rsi\njz 2f\n"
    "cmpb $'c', (%rsi)\njne 2f\ncmpb $'u', 1(%rsi)\njne 2f\njmp found\n"
    "2: jmp *next(%rip)\n");

__attribute__((used, visibility("hidden"))) void find_next(void) {
    void *found = dlvsym((void *)-1, "dlsym", "GLIBC_2.34");
    next = (word)(found ? found : dlvsym((void *)-1, "dlsym", "GLIBC_2.2.5"));
}

static word counted(const char *name, word address);

// `cuGetProcAddress` has two forms, and each may hand out the other. Both get five arguments; the older one ignores the fifth.
static Call lookups[4];
static int look_up(int form, word name, word place, word version, word flags, word status) {
    int result = lookups[form](name, place, version, flags, status, 0, 0, 0, 0, 0, 0, 0);
    word *found = (word *)place;
    if (result == 0 && found && *found) *found = counted((const char *)name, *found);
    return result;
}
#define LOOKUP(form) static int lookup_##form(word name, word place, word version, word flags, word status) { \
        return look_up(form, name, place, version, flags, status); }
LOOKUP(0) LOOKUP(1) LOOKUP(2) LOOKUP(3)

static word counted(const char *name, word address) {
    if (!strncmp(name, "cuGetProcAddress", 16)) {
        static const word forms[] = {(word)lookup_0, (word)lookup_1, (word)lookup_2, (word)lookup_3};
        for (word form = 0; form < 4; form++) {
            if (!lookups[form]) lookups[form] = (Call)address;
            if (lookups[form] == (Call)address) return forms[form];
        }
        return address;
    }
    if (name[0] != 'c' || name[1] != 'u') return address;
    for (word slot = 0; slot < used && slot < SLOTS; slot++)
        if (real[slot] == address) return (word)jumps + 32 * slot;
    word slot = __sync_fetch_and_add(&used, 1);
    if (slot >= SLOTS) return address;
    real[slot] = address;
    strncpy(names[slot], name, NAME - 1);
    return (word)jumps + 32 * slot;
}

__attribute__((used, visibility("hidden"))) word found(word handle, const char *name) {
    word address = ((word(*)(word, const char *))next)(handle, name);
    return address ? counted(name, address) : 0;
}

// The calls of a function so far, and its name; null after the last one. Functions that were looked up more than once have several places.
EXPORTED const char *count_of(word slot, word *calls) {
    if (slot >= used || slot >= SLOTS) return 0;
    *calls = counts[slot];
    return names[slot];
}
EXPORTED word times_asked(void) { return asked; }
