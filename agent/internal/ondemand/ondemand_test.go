package ondemand

import (
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const index = `llc -
stp llc
bridge llc,stp rtnl_link_bridge
nf_log_syslog - nf_logger_2_0
xt_nat x_tables,nf_nat ipt_DNAT ipt_SNAT
`

func TestAModuleIsFoundByNameAndByAliasWithWhatMustBeLoadedBeforeIt(t *testing.T) {
	for name, want := range map[string][]string{
		"bridge": {"llc", "stp", "bridge"}, "rtnl-link-bridge": {"llc", "stp", "bridge"}, "llc": {"llc"},
		"ipt_SNAT": {"x_tables", "nf_nat", "xt_nat"}, "nf-log-syslog": {"nf_log_syslog"},
		"net-pf-40": nil, "bridg": nil, "": nil, "llc,stp": nil, "-": nil,
	} {
		if got := find(index, name); !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", name, got, want)
		}
	}
}

func TestTheArgumentsOfTheKernelOfIptablesAndOfDockerAreUnderstood(t *testing.T) {
	for text, want := range map[string]string{
		"-q -- rtnl-link-bridge":      "rtnl-link-bridge",
		"-q ip_tables":                "ip_tables",
		"-va bridge br_netfilter":     "bridge br_netfilter",
		"--all --quiet bridge nf_nat": "bridge nf_nat",
		"-- -q":                       "-q",
		"overlay":                     "overlay",
	} {
		got, err := parseArguments(strings.Fields(text))
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("%q: %v %v", text, got, err)
		}
	}
	for _, text := range []string{"", "-q", "-r bridge", "--remove bridge", "- bridge", "bonding mode=1", "-d /tmp bridge"} {
		if got, err := parseArguments(strings.Fields(text)); err == nil {
			t.Errorf("%q: %v", text, got)
		}
	}
}

func TestAModuleThatTheKernelHasIsNotLookedForAndAnUnknownOneIsAnError(t *testing.T) {
	directory := t.TempDir()
	if err := os.WriteFile(filepath.Join(directory, indexFile), []byte(index), 0o600); err != nil {
		t.Fatal(err)
	}
	// Every kernel has this one built in.
	if err := load(directory, []string{"-q", "kernel"}); err != nil {
		t.Error(err)
	}
	err := load(directory, []string{"-q", "--", "no-such-module"})
	if err == nil || !strings.Contains(err.Error(), "no-such-module") {
		t.Error(err)
	}
	if err := load(directory, []string{"../../etc"}); err == nil {
		t.Error("a path was taken for a module")
	}
}

func TestAModuleIsUnpacked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.ko.gz")
	var packed bytes.Buffer
	writer := gzip.NewWriter(&packed)
	if _, err := writer.Write([]byte("code")); err != nil {
		t.Fatal(err)
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, packed.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := unpack(path); err != nil || string(got) != "code" {
		t.Errorf("%q %v", got, err)
	}
	if err := os.WriteFile(path, packed.Bytes()[:8], 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := unpack(path); err == nil {
		t.Error("half a file was unpacked")
	}
}
