// Command hostctl asks the kernel what the service's main program cannot: netfilter's connections and rules, TAPs, and
// the rate of the time stamp counter.
//
//	hostctl tsc        prints the rate in kHz
//	hostctl serve      answers requests on standard input (package serve)
//	hostctl originals  the same, but only for the destinations of redirected connections
package main

import (
	"fmt"
	"os"

	"coppice/hostctl/internal/serve"
	"coppice/hostctl/internal/tsc"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "hostctl:", err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	if len(arguments) != 1 {
		return fmt.Errorf("usage: hostctl tsc | serve | originals")
	}
	switch arguments[0] {
	case "tsc":
		rate, err := tsc.MeasureKHz()
		if err == nil {
			fmt.Println(rate)
		}
		return err
	case "serve":
		return serve.Run(os.Stdin, os.Stdout)
	case "originals":
		return serve.Run(os.Stdin, os.Stdout, "original")
	default:
		return fmt.Errorf("there is no subcommand %q: tsc, serve or originals", arguments[0])
	}
}
