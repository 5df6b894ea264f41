package vmmemory

import (
	"strings"
	"testing"
)

const (
	ram   = "7f0000000000-7f0000400000 rw-p 00000000 fe:01 1234                       /var/lib/x/ram\n"
	other = "7f0000500000-7f0000600000 r--p 00000000 fe:01 99                         /lib/x\n"
	stack = "7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0                          [stack]\n"
	bare  = "7ffd00000000-7ffd00001000 rw-p 00000000 00:00 0\n"
	gate  = "ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]\n"
)

var ramFile = fileID{0xfe, 1, 1234}

func TestTheMappingOfTheRAMIsFound(t *testing.T) {
	for name, maps := range map[string]string{
		"alone":    ram,
		"in parts": stack + strings.Replace(ram, "400000 ", "100000 ", 1) + "7f0000100000-7f0000400000 rw-p 00100000 fe:01 1234 /x (deleted)\n" + gate,
		"among others of the same file": "600000000000-600000400000 rw-s 00000000 fe:01 1234 /x\n" + ram + other + bare +
			"7fff00000000-7fff00400000 rw-p 00001000 fe:01 1234 /x\n",
	} {
		address, err := findWhole(strings.NewReader(maps), ramFile, 4<<20)
		if err != nil || address != 0x7f0000000000 {
			t.Errorf("%s: %x, %v", name, address, err)
		}
	}
}

func TestWhatIsNotOneWholeMappingIsRefused(t *testing.T) {
	for name, maps := range map[string]string{
		"nothing":               "",
		"another file":          strings.Replace(ram, "1234", "1235", 1),
		"another device":        strings.Replace(ram, "fe:01", "fe:02", 1),
		"shared":                strings.Replace(ram, "rw-p", "rw-s", 1),
		"shorter":               strings.Replace(ram, "400000 ", "3ff000 ", 1),
		"longer":                strings.Replace(ram, "400000 ", "401000 ", 1),
		"not the start":         strings.Replace(ram, "00000000 fe", "00001000 fe", 1),
		"twice":                 ram + strings.ReplaceAll(ram, "7f0000", "7f1000"),
		"a gap":                 strings.Replace(ram, "400000 ", "100000 ", 1) + "7f0000101000-7f0000401000 rw-p 00100000 fe:01 1234 /x\n",
		"in wrong order":        strings.Replace(ram, "400000 ", "100000 ", 1) + "7f0000100000-7f0000400000 rw-p 00200000 fe:01 1234 /x\n",
		"not a mapping":         ram + "hello\n",
		"a line too long":       ram + strings.TrimSuffix(other, "\n") + strings.Repeat("x", maxLineBytes) + "\n",
		"a number too long":     ram + strings.Replace(other, " 99 ", " 99999999999999999999 ", 1),
		"ends before it starts": ram + strings.Replace(other, "600000", "500000", 1),
		"an empty line":         ram + "\n" + other,
	} {
		if address, err := findWhole(strings.NewReader(maps), ramFile, 4<<20); err == nil {
			t.Errorf("%s: found at %x", name, address)
		}
	}
}

func FuzzParseMapping(f *testing.F) {
	for _, line := range []string{ram, other, stack, bare, gate} {
		f.Add(strings.TrimSuffix(line, "\n"))
	}
	f.Fuzz(func(t *testing.T, line string) {
		found, err := parseMapping(line)
		if err == nil && found.end <= found.start {
			t.Errorf("%q: %+v", line, found)
		}
	})
}

func TestPagesOfTheVMAreToldFromThoseOfItsBase(t *testing.T) {
	const softDirty, exclusive, frame = 1 << 55, 1 << 56, 0x1234
	for _, test := range []struct {
		name  string
		entry uint64
		want  bool
	}{
		{"never touched", 0, false},
		{"read from the base", pagePresent | pageFileOrShared | frame, false},
		{"written", pagePresent | softDirty | exclusive | frame, true},
		{"swapped", pageSwapped | frame, true},
		{"the base's, while it is migrated", pageSwapped | pageFileOrShared | frame, false},
	} {
		if isPrivate(test.entry) != test.want {
			t.Errorf("%s: %v", test.name, !test.want)
		}
	}
}
