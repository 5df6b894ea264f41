// Command capture writes the memory of VMs to files, and computes digests of files.
//
//	capture save         run a session of steps on standard input and output: package save
//	capture sum PATH...  print a line {"path","size_bytes","digest"} for each file; exit code 1 if one cannot be read
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"coppice/capture/internal/digest"
	"coppice/capture/internal/save"
)

func main() { os.Exit(run(os.Args[1:])) }

func run(arguments []string) int {
	switch {
	case len(arguments) == 1 && arguments[0] == "save":
		return save.Run(os.Stdin, os.Stdout)
	case len(arguments) > 1 && arguments[0] == "sum":
		return sum(arguments[1:], os.Stdout)
	default:
		fmt.Fprintf(os.Stderr, "capture: unknown arguments %q: it takes save, or sum and paths\n", arguments)
		return 2
	}
}

type sumAnswer struct {
	Path string `json:"path"`
	digest.Sum
}

type sumError struct {
	Path  string `json:"path"`
	Error string `json:"error"`
}

func sum(paths []string, output io.Writer) int {
	answers, code := json.NewEncoder(output), 0
	for _, path := range paths {
		var answer any
		found, err := digest.Path(path)
		if answer = (sumAnswer{path, found}); err != nil {
			answer, code = sumError{path, err.Error()}, 1
		}
		if err := answers.Encode(answer); err != nil {
			return 1
		}
	}
	return code
}
