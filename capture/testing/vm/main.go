// Command vm is a process with a private mapping, for tests in other languages.
//
//	vm as-mapper FILE BYTES   then one order a line on standard input: package mapper
package main

import (
	"fmt"
	"os"

	"coppice/capture/testing/mapper"
)

func main() {
	mapper.Serve()
	fmt.Fprintln(os.Stderr, "vm: unknown arguments")
	os.Exit(2)
}
