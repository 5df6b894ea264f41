// Command jail becomes QEMU, or another program that its plan names, and leaves it access only to what the plan gives
// it. docs/decisions/0010-qemu-jail.md explains why and how.
//
//	jail < plan.json     become the program; if a step fails, print one line and exit with code 1
//	jail --probe         inside the jail: report whether this process is confined as a plan asks, exit code 0 or 1
package main

import (
	"fmt"
	"os"
	"runtime"

	"coppice/jail/internal/launch"
	"coppice/jail/internal/probe"
)

// Namespaces, identity and filter belong to a thread. Locked here, main runs on the process's first thread until its
// end.
func init() { runtime.LockOSThread() }

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "jail: %v\n", err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	switch {
	case len(arguments) == 0:
		return launch.Run(os.Stdin)
	case len(arguments) == 1 && arguments[0] == "--probe":
		return probe.Run(os.Stdout)
	default:
		return fmt.Errorf("unknown arguments %q: it takes --probe, or a plan on standard input", arguments)
	}
}
