// Package proctable reads the guest's processes from /proc. The table may be outdated when it is used, and root in the
// guest can mount something else on /proc. A caller that sends signals by the table must check what can be checked.
package proctable

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// Process is one line of the table. StartTicks orders processes by their start.
type Process struct {
	Pid, Parent, Group, Session int
	StartTicks                  uint64
}

// List reads the table of root, which is /proc except in tests. Processes that end in the meantime are left out.
func List(root string) ([]Process, error) {
	directory, err := os.Open(root)
	if err != nil {
		return nil, err
	}
	names, err := directory.Readdirnames(-1)
	_ = directory.Close()
	if err != nil {
		return nil, err
	}
	var table []Process
	for _, name := range names {
		if name[0] < '1' || name[0] > '9' {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, name, "stat"))
		if err != nil {
			continue
		}
		if process, err := parse(text); err == nil {
			table = append(table, process)
		}
	}
	return table, nil
}

// Fields of proc(5)'s stat, counted from the state, which follows the name.
const (
	fieldParent = 1 + iota
	fieldGroup
	fieldSession
	fieldStart = 19
	fieldCount = 20
)

// parse takes everything up to the last parenthesis as the name, because a name may contain anything.
func parse(text []byte) (Process, error) {
	open, end := bytes.IndexByte(text, '('), bytes.LastIndexByte(text, ')')
	if open < 0 || end < open {
		return Process{}, fmt.Errorf("no name in %q", text)
	}
	fields := bytes.Fields(text[end+1:])
	if len(fields) < fieldCount {
		return Process{}, fmt.Errorf("%d fields in %q", len(fields), text)
	}
	var p Process
	for _, one := range []struct {
		text []byte
		slot *int
	}{
		{bytes.TrimSpace(text[:open]), &p.Pid},
		{fields[fieldParent], &p.Parent},
		{fields[fieldGroup], &p.Group},
		{fields[fieldSession], &p.Session},
	} {
		number, err := strconv.Atoi(string(one.text))
		if err != nil {
			return Process{}, err
		}
		*one.slot = number
	}
	var err error
	p.StartTicks, err = strconv.ParseUint(string(fields[fieldStart]), 10, 64)
	return p, err
}
