package plan

import (
	"strings"
	"testing"
)

const minimal = `{"version":4,"cgroups":[],"namespaces":true,"mounts":[{"source":"/a","target":"/b","writable":false,` +
	`"executable":false,"device":false}],"identity":{"uid":7,"gid":7},"limits":{"open_files":9,"file_size_bytes":0,` +
	`"tasks":0},"descriptors":[3],"program":"/bin/x","arguments":["-y"]}`

func TestAPlanIsReadWhole(t *testing.T) {
	got, err := Read(strings.NewReader(minimal))
	if err != nil {
		t.Fatal(err)
	}
	if got.Program != "/bin/x" || got.Identity.UID != 7 || got.Limits.OpenFiles != 9 || got.Mounts[0].Target != "/b" {
		t.Errorf("got %+v", got)
	}
}

func TestAPlanThatCannotBeMeantIsRefused(t *testing.T) {
	for _, test := range []struct{ name, old, new, want string }{
		{"not JSON", minimal, "", "not valid"},
		{"an unknown field", `"program"`, `"extra":1,"program"`, "unknown field"},
		{"another version", `"version":4`, `"version":1`, "version 1"},
		{"a TAP at a descriptor that is not kept", `"descriptors":[3]`, `"tap":{"name":"t","descriptor":4},"descriptors":[3]`, "tap"},
		{"root as identity", `"uid":7`, `"uid":0`, "root"},
		{"root's group", `"gid":7`, `"gid":0`, "root"},
		{"a standard stream as input", `"descriptors"`, `"input":0,"descriptors"`, "standard stream"},
		{"a standard stream as descriptor", `[3]`, `[2]`, "standard stream"},
		{"a relative program", `/bin/x`, `bin/x`, "plain absolute"},
		{"a target outside", `"/b"`, `"/../b"`, "plain absolute"},
		{"the root as target", `"/b"`, `"/"`, "plain absolute"},
		{"mounts without namespaces", `"namespaces":true`, `"namespaces":false`, "need namespaces"},
		{"too long", `["-y"]`, `["` + strings.Repeat("y", maxBytes) + `"]`, "longer than"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := Read(strings.NewReader(strings.Replace(minimal, test.old, test.new, 1)))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want something about %q", err, test.want)
			}
		})
	}
}
