// Command hostile takes QEMU's place in tests and tries what an escaped guest would. It reports every attempt as a line
// of JSON, with the name of the error or "ok". Its attempts do no harm even if they succeed: it opens files but does
// not write; it sends signal 0; a process that it could start ends at once.
//
//	hostile attack <report file> <targets as JSON>
//	hostile memory          touches memory until it is stopped
//	hostile threads         starts threads until it is stopped
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// Targets are what the program must not reach on the host.
type Targets struct {
	// Paths are files and directories of others.
	Paths []string `json:"paths"`
	// Sockets are Unix sockets of others.
	Sockets []string `json:"sockets"`
	// Pids are processes of others.
	Pids []int `json:"pids"`
	// Own lists the files that a VM may use.
	Own struct {
		Image   string `json:"image"`
		RAM     string `json:"ram"`
		Scratch string `json:"scratch"`
		Sockets string `json:"sockets"`
	} `json:"own"`
	// TAP is an open descriptor of /dev/net/tun.
	TAP int `json:"tap"`
}

type attempt struct {
	name string
	try  func() error
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "hostile:", err)
		os.Exit(3)
	}
}

func run(arguments []string) error {
	switch {
	case len(arguments) == 3 && arguments[0] == "attack":
		targets := &Targets{}
		if err := json.Unmarshal([]byte(arguments[2]), targets); err != nil {
			return err
		}
		return attack(arguments[1], targets)
	case len(arguments) == 1 && arguments[0] == "memory":
		return takeMemory()
	case len(arguments) == 1 && arguments[0] == "threads":
		return takeThreads()
	}
	return fmt.Errorf("unknown arguments %q", arguments)
}

func attack(report string, targets *Targets) error {
	// This comes first, before the runtime opens anything for itself.
	open := openDescriptors()
	file, err := os.OpenFile(report, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	encoder := json.NewEncoder(file)
	record := func(name, result string) {
		if err := encoder.Encode(map[string]string{"attempt": name, "result": result}); err != nil {
			panic(err)
		}
	}
	record("open descriptors", fmt.Sprint(open))
	record("names in the root directory", listNames("/"))
	for _, list := range [][]attempt{
		fileAttempts(targets), processAttempts(targets), networkAttempts(targets), privilegeAttempts(targets),
		permitted(targets),
	} {
		for _, each := range list {
			record(each.name, resultOf(each.try()))
		}
	}
	return file.Close()
}

func resultOf(err error) string {
	var errno unix.Errno
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, &errno) && errno != 0:
		return unix.ErrnoName(errno)
	default:
		return err.Error()
	}
}

// openDescriptors lists the descriptors that refer to something outside. Those that the runtime opens for itself have
// no file type.
func openDescriptors() []int {
	found := []int{}
	for descriptor := 3; descriptor < 1024; descriptor++ {
		var status unix.Stat_t
		if unix.Fstat(descriptor, &status) == nil && status.Mode&unix.S_IFMT != 0 {
			found = append(found, descriptor)
		}
	}
	return found
}

func listNames(directory string) string {
	entries, err := os.ReadDir(directory)
	if err != nil {
		return resultOf(err)
	}
	names := []string{}
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return fmt.Sprint(names)
}

const (
	memoryStepBytes = 16 << 20
	memoryEndBytes  = 1 << 30
	threadEnd       = 4096
)

func takeMemory() error {
	held := [][]byte{}
	for taken := 0; taken < memoryEndBytes; taken += memoryStepBytes {
		step := make([]byte, memoryStepBytes)
		for at := 0; at < len(step); at += 4096 {
			step[at] = 1
		}
		held = append(held, step)
	}
	return fmt.Errorf("nothing stopped it at %d steps", len(held))
}

func takeThreads() error {
	for started := 0; started < threadEnd; started++ {
		ready := make(chan struct{})
		go func() {
			runtime.LockOSThread()
			close(ready)
			unix.Pause()
		}()
		<-ready
	}
	time.Sleep(time.Second)
	return errors.New("nothing stopped it")
}
