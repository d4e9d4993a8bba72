/* ptx_kernels.cc - which kernels are translated, what has run, and reports of faults
 *
 * With $PTX_TOTALS, the name of a file, a program adds to it at its end the names of all kernels
 * ("kernel NAME") and of those that ran ("ran NAME"), "instructions N" and "faults N". A program
 * in which there was a fault ends with 3. $PTX_OFF, of any value: the C++ kernels run. */
#include <cxxabi.h>
#include <elf.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>

#include "tests/ptx/ptx_runtime.h"

extern "C" unsigned long cuda_launches;

namespace ptx {

u64 executed;
const struct entry *running;

/* "gpu_x:NAME": two files may have kernels of one name. Constructors of other files use it before
 * those of this one have run. */
static std::map<std::string, struct entry *> &
kernels(void)
{
	static auto *all = new std::map<std::string, struct entry *>;

	return *all;
}

static unsigned long faults;

/* The name of a file without folders and what follows a dot, and a colon */
static std::string
module_of(const char *path)
{
	const std::string file = strrchr(path, '/') == NULL ? path : strrchr(path, '/') + 1;

	return file.substr(0, file.find('.')) + ":";
}

registered::registered(struct entry *e)
{
	if (!kernels().insert({ module_of(e->file) + e->name, e }).second) {
		fprintf(stderr, "ptx: there are two kernels %s\n", e->name);
		abort();
	}
}

/* ---- names of functions of this program ---- */

static u64
loaded_at(void)
{
	unsigned long base = 0;
	FILE *maps = fopen("/proc/self/maps", "r");

	if (maps == NULL || fscanf(maps, "%lx", &base) != 1)
		abort();
	fclose(maps);
	return base;
}

/* A mangled name as if the function were not static */
static std::string
not_static(const std::string &name)
{
	return name.compare(0, 3, "_ZL") == 0 ? "_Z" + name.substr(3) : name;
}

static void
read_symbols(const char *elf, std::map<u64, std::string> *all)
{
	const Elf64_Ehdr *head = (const Elf64_Ehdr *)elf;
	const Elf64_Shdr *section = (const Elf64_Shdr *)(elf + head->e_shoff);
	const u64 base = head->e_type == ET_DYN ? loaded_at() : 0;

	for (int i = 0; i < head->e_shnum; i++) {
		if (section[i].sh_type != SHT_SYMTAB)
			continue;
		const Elf64_Sym *s = (const Elf64_Sym *)(elf + section[i].sh_offset);
		const char *names = elf + section[section[i].sh_link].sh_offset;
		std::string module;

		/* the static functions of a file stand behind its name */
		for (u64 k = 0; k < section[i].sh_size / sizeof *s; k++) {
			const char *name = names + s[k].st_name;

			if (ELF64_ST_TYPE(s[k].st_info) == STT_FILE)
				module = module_of(name);
			else if (s[k].st_info == ELF64_ST_INFO(STB_LOCAL, STT_FUNC))
				(*all)[base + s[k].st_value] = module + not_static(name);
		}
	}
}

/* The name in kernels() that a static C++ function would have; "" for others */
static std::string
name_of(const void *function)
{
	static std::map<u64, std::string> all;
	struct stat st;
	int fd;

	if (all.empty()) {
		if ((fd = open("/proc/self/exe", O_RDONLY)) < 0 || fstat(fd, &st) != 0)
			abort();
		read_symbols((const char *)mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE,
		    fd, 0), &all);
		close(fd);
	}
	const auto found = all.find((u64)(uintptr_t)function);
	return found == all.end() ? "" : found->second;
}

/* kernel<types>, of a mangled name */
static std::string
readable(const char *mangled)
{
	char *text = abi::__cxa_demangle(mangled, NULL, NULL, NULL);
	std::string name = text == NULL ? mangled : text;

	free(text);
	name.resize(std::min(name.find('('), name.size()));
	return name.compare(0, 5, "void ") == 0 ? name.substr(5) : name;
}

/* ---- reports ---- */

static std::string
below_here(const std::string &path)
{
	char here[4096];

	if (getcwd(here, sizeof here) != NULL && path.compare(0, strlen(here), here) == 0)
		return path.substr(strlen(here) + 1);
	return path;
}

/* Where the instruction comes from: "gpu/gpu_x.cu:12 (gpu/port.h:34)", and its text */
static std::string
source_of(const char *path, int line)
{
	std::map<int, std::string> files;
	std::string text, inner, outer;
	int file = 0, row = 0, file_above = 0, row_above = 0, at = 0, number;
	char *words = NULL, name[4096];
	const char *above;
	size_t room = 0;
	FILE *f = fopen(path, "r");

	while (f != NULL && getline(&words, &room, f) > 0) {
		at++;
		if (sscanf(words, " .file %d \"%4095[^\"]\"", &number, name) == 2)
			files[number] = below_here(name);
		if (at == line) {
			text = words + strspn(words, " \t");
			text.resize(std::min(text.find('\n'), text.size()));
		}
		if (at > line || sscanf(words, " .loc %d %d", &file, &row) != 2)
			continue;
		above = strstr(words, "inlined_at ");
		if (above == NULL ||
		    sscanf(above, "inlined_at %d %d", &file_above, &row_above) != 2)
			file_above = 0;
	}
	free(words);
	if (f != NULL)
		fclose(f);
	inner = files[file] + ":" + std::to_string(row);
	outer = files[file_above] + ":" + std::to_string(row_above);
	return (file_above != 0 ? outer + " (" + inner + ")" : inner) + "; " + path + ":" +
	    std::to_string(line) + ": " + text;
}

static void
report(int line, const char *format, va_list ap)
{
	static auto *told = new std::set<std::tuple<const void *, int, const void *>>;
	char text[512];

	faults++;
	if (!told->insert({ running, line, format }).second)
		return;
	vsnprintf(text, sizeof text, format, ap);
	fprintf(stderr, "ptx: %s, block %u,%u,%u, thread %u: %s\n    %s\n",
	    readable(running->name).c_str(), emulator::block.x, emulator::block.y,
	    emulator::block.z, emulator::current->number, text,
	    source_of(running->file, line).c_str());
}

void
fault(int line, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	report(line, format, ap);
	va_end(ap);
}

static void
write_totals(void)
{
	const char *name = getenv("PTX_TOTALS");
	FILE *f = name == NULL ? NULL : fopen(name, "a");

	if (f == NULL)
		return;
	for (const auto &[name, e] : kernels()) {
		const std::string text = module_of(e->file) + " " + readable(e->name);

		fprintf(f, "kernel %s\n", text.c_str());
		if (e->ran)
			fprintf(f, "ran %s\n", text.c_str());
	}
	fprintf(f, "instructions %lu\nfaults %lu\n", (unsigned long)executed, faults);
	fclose(f);
}

void
stop(int line, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	report(line, format, ap);
	va_end(ap);
	write_totals();
	fflush(NULL);
	_exit(3);
}

__attribute__((destructor)) static void
end(void)
{
	write_totals();
	if (faults > 0) {
		fprintf(stderr, "ptx: %lu faults\n", faults);
		fflush(NULL);
		_exit(3);
	}
}

/* ---- a thread begins ---- */

static const char *arguments[emulator::MAX_THREADS];

bool
in_arguments(const char *p, size_t bytes)
{
	const char *from = arguments[emulator::current->number];
	const struct emulator::translated &call = running->call;

	return p >= from && p + bytes <= from + call.offset[call.n];
}

void
enter(struct entry *e, const unsigned char *param)
{
	static unsigned long launch;
	static uint3 block;
	const uint3 &now = emulator::block;

	arguments[emulator::current->number] = (const char *)param;
	if (launch == cuda_launches && block.x == now.x && block.y == now.y && block.z == now.z)
		return;
	begin_clocks(launch != cuda_launches);
	forget_copies();
	launch = cuda_launches;
	block = now;
	running = e;
	e->ran = true;
}

} // namespace ptx

const struct emulator::translated *
emulator::find_translated(const void *kernel)
{
	static const bool off = getenv("PTX_OFF") != NULL;
	const auto found = ptx::kernels().find(ptx::name_of(kernel));

	return off || found == ptx::kernels().end() ? NULL : &found->second->call;
}
