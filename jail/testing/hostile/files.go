package main

import (
	"io"
	"os"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/unix"
)

// tooFar is beyond the file size limit of every VM in the tests.
const tooFar = 1 << 40

func fileAttempts(targets *Targets) []attempt {
	attempts := []attempt{}
	for _, path := range append([]string{"/etc/passwd", "/proc/1/status", "/proc/self/mem", "/sys", "/home", "/root",
		"/var", "/tmp", "/dev/kvm", "/dev/mem", "/../../etc/passwd"}, targets.Paths...) {
		attempts = append(attempts, attempt{"read " + path, func() error { return closing(os.Open(path)) }})
	}
	own := targets.Own
	for _, path := range []string{own.Image, own.RAM} {
		attempts = append(attempts,
			attempt{"open for writing " + path, func() error { return closing(os.OpenFile(path, os.O_RDWR, 0)) }},
			attempt{"change the mode of " + path, func() error { return unix.Chmod(path, 0o777) }})
	}
	inOwn := func(name string) string { return filepath.Join(own.Sockets, name) }
	return append(attempts,
		attempt{"make a directory in the root", func() error { return unix.Mkdir("/made", 0o700) }},
		attempt{"make a file beside the scratch disk", func() error { return makeFile(filepath.Join(filepath.Dir(own.Scratch), "made")) }},
		attempt{"make a symbolic link", func() error { return unix.Symlink("/etc/passwd", inOwn("link")) }},
		attempt{"make a hard link", func() error { return unix.Link(own.Scratch, inOwn("hard")) }},
		attempt{"make a device node", func() error { return unix.Mknod(inOwn("node"), unix.S_IFCHR|0o600, 0x103) }},
		attempt{"open by handle", openByHandle},
		attempt{"run a file with the setuid bit", func() error { return runSetuid(inOwn("setuid")) }},
		attempt{"write beyond the limit of file size", func() error { return writeFar(inOwn("large")) }},
		calling("raise the limit of file size", unix.SYS_SETRLIMIT, unix.RLIMIT_FSIZE, 1),
		calling("raise the limit of file size by prlimit", unix.SYS_PRLIMIT64, 0, unix.RLIMIT_FSIZE, 1),
	)
}

func makeFile(path string) error {
	return closing(os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600))
}

func closing(file *os.File, err error) error {
	if err == nil {
		return file.Close()
	}
	return err
}

func openByHandle() error {
	handle := [16]byte{}
	return call(unix.SYS_OPEN_BY_HANDLE_AT, 0, uintptr(unsafe.Pointer(&handle)), 0)
}

// runSetuid writes a file that is not a complete program. If the jail let it run, execve would fail with ENOEXEC.
func runSetuid(path string) error {
	if err := os.WriteFile(path, []byte("\x7fELF"), 0o700); err != nil {
		return err
	}
	if err := unix.Chmod(path, 0o4755); err != nil {
		return err
	}
	return unix.Exec(path, []string{path}, nil)
}

func writeFar(path string) error {
	descriptor, err := unix.Open(path, unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	defer unix.Close(descriptor)
	_, err = unix.Pwrite(descriptor, []byte("x"), tooFar)
	return err
}

// permitted lists what QEMU does all the time. If these attempts failed too, the others would prove nothing.
func permitted(targets *Targets) []attempt {
	own := targets.Own
	return []attempt{
		{"permitted: read the image", func() error { return readFirst(own.Image) }},
		{"permitted: read the RAM", func() error { return readFirst(own.RAM) }},
		{"permitted: map the RAM privately", func() error { return mapPrivately(own.RAM) }},
		{"permitted: write the scratch disk", func() error { return writeFirst(own.Scratch) }},
		{"permitted: listen on a socket", func() error { return listen(filepath.Join(own.Sockets, "listening")) }},
		{"permitted: signal itself", func() error { return unix.Kill(os.Getpid(), 0) }},
	}
}

func readFirst(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = io.ReadFull(file, make([]byte, 4))
	return err
}

func mapPrivately(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	memory, err := unix.Mmap(int(file.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE)
	if err != nil {
		return err
	}
	memory[0] ^= 1
	return unix.Munmap(memory)
}

func writeFirst(path string) error {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = file.WriteAt([]byte("mine"), 0)
	return err
}

func listen(path string) error {
	descriptor, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return err
	}
	defer unix.Close(descriptor)
	if err := unix.Bind(descriptor, &unix.SockaddrUnix{Name: path}); err != nil {
		return err
	}
	return unix.Listen(descriptor, 1)
}
