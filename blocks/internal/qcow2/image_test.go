package qcow2_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"coppice/blocks/internal/qcow2"
)

func run(t testing.TB, program string, arguments ...string) []byte {
	t.Helper()
	output, err := exec.Command(program, arguments...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", program, arguments, err, output)
	}
	return output
}

func create(t testing.TB, options, size string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "overlay.qcow2")
	run(t, "qemu-img", "create", "-q", "-f", "qcow2", "-o", options, path, size)
	return path
}

func open(t testing.TB, path string) *qcow2.Image {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	info, _ := file.Stat()
	image, err := qcow2.Open(file, info.Size())
	if err != nil {
		t.Fatal(err)
	}
	return image
}

// draw returns commands for qemu-io: writes, zero writes and discards at random places.
func draw(random *rand.Rand, size int64, count int) []string {
	var commands []string
	for range count {
		unit := []int64{512, 4096, 65536}[random.IntN(3)]
		length := unit * (1 + random.Int64N(40))
		offset := random.Int64N(size/unit) * unit
		length = min(length, size-offset)
		if length == 0 {
			continue
		}
		command := []string{"write -P %d", "write -z", "write -z -u", "discard"}[min(3, random.IntN(6)/2+random.IntN(2))]
		if command == "write -P %d" {
			command = fmt.Sprintf(command, 1+random.IntN(255))
		}
		commands = append(commands, "-c", fmt.Sprintf("%s %d %d", command, offset, length))
	}
	return commands
}

func TestRandomOverlaysAreReadAsQemuImgReadsThem(t *testing.T) {
	for _, options := range []string{
		"cluster_size=128k,extended_l2=on", "cluster_size=64k", "cluster_size=64k,extended_l2=on", "cluster_size=512",
		"cluster_size=2M,extended_l2=on", "cluster_size=128k,extended_l2=on,preallocation=metadata",
	} {
		for seed := range uint64(3) {
			t.Run(fmt.Sprint(options, seed), func(t *testing.T) {
				const size = 40<<20 + 4096*3
				random := rand.New(rand.NewPCG(seed, 1))
				path := create(t, options, fmt.Sprint(size))
				run(t, "qemu-io", append([]string{"-d", "unmap", "-f", "qcow2", path}, draw(random, size, 40)...)...)
				compare(t, path, size)
			})
		}
	}
}

type mapEntry struct {
	Start, Length int64
	Data, Zero    bool
	Present       bool
}

// compare reads the overlay with both programs, and marks every 512 bytes: 0 absent, 1 data, 2 zero.
func compare(t *testing.T, path string, size int64) {
	const unit = 512
	var entries []mapEntry
	if err := json.Unmarshal(run(t, "qemu-img", "map", "--output=json", "-f", "qcow2", path), &entries); err != nil {
		t.Fatal(err)
	}
	want, got := make([]byte, size/unit), make([]byte, size/unit)
	for _, entry := range entries {
		for at := entry.Start; entry.Present && at < entry.Start+entry.Length; at += unit {
			want[at/unit] = 1
			if !entry.Data {
				want[at/unit] = 2
			}
		}
	}
	image, content := open(t, path), make([]byte, size)
	for extent, err := range image.Extents() {
		if err != nil {
			t.Fatal(err)
		}
		for at := extent.Offset; at < extent.Offset+extent.Length; at += unit {
			got[at/unit] = 1
			if extent.IsZero {
				got[at/unit] = 2
			}
		}
		if extent.IsZero {
			continue
		}
		if err := image.ReadAt(content[extent.Offset:extent.Offset+extent.Length], extent, 0); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(got, want) {
		t.Errorf("the maps differ at byte %d", firstDifference(got, want)*unit)
	}
	raw := path + ".raw"
	run(t, "qemu-img", "convert", "-f", "qcow2", "-O", "raw", path, raw)
	expected, err := os.ReadFile(raw)
	if err != nil || !bytes.Equal(content, expected) {
		t.Errorf("the contents differ at %d, %v", firstDifference(content, expected), err)
	}
}

func firstDifference(a, b []byte) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}

func TestOverlaysOfOtherMakersAreRefused(t *testing.T) {
	base := create(t, "cluster_size=64k", "1M")
	file := filepath.Join(t.TempDir(), "data")
	for _, options := range []string{
		"backing_file=" + base + ",backing_fmt=qcow2", "compat=0.10", "compression_type=zstd",
		"data_file=" + file, "data_file=" + file + ",data_file_raw=on",
		"encrypt.format=luks,encrypt.key-secret=s",
	} {
		path := filepath.Join(t.TempDir(), "overlay.qcow2")
		run(t, "qemu-img", "create", "-q", "--object", "secret,id=s,data=x", "-f", "qcow2", "-o", options, path, "1M")
		content, _ := os.ReadFile(path)
		if _, err := qcow2.Open(bytes.NewReader(content), int64(len(content))); !errors.Is(err, qcow2.ErrRefused) {
			t.Errorf("%s: %v", options, err)
		}
	}
	run(t, "qemu-img", "snapshot", "-c", "name", base)
	run(t, "qemu-io", "-f", "qcow2", "-c", "write -P 1 0 64k", base)
	content, _ := os.ReadFile(base)
	if _, err := qcow2.Open(bytes.NewReader(content), int64(len(content))); !errors.Is(err, qcow2.ErrRefused) {
		t.Errorf("an internal snapshot: %v", err)
	}
}

func TestCompressedClustersAreRefused(t *testing.T) {
	path := create(t, "cluster_size=64k", "1M")
	run(t, "qemu-io", "-f", "qcow2", "-c", "write -c -P 1 0 64k", path)
	if err := scan(open(t, path)); !errors.Is(err, qcow2.ErrRefused) {
		t.Errorf("got %v", err)
	}
}

// QEMU keeps the reference counts of a disk's overlays in memory, and writes them when it closes the overlay.
func TestAnOverlayWhoseQEMUWasKilledIsRead(t *testing.T) {
	path := create(t, "cluster_size=128k,extended_l2=on", "64M")
	image := "driver=qcow2,lazy-refcounts=on,file.filename=" + path
	command := exec.Command("qemu-io", "--image-opts", image,
		"-c", "write -P 1 0 64k", "-c", "write -P 2 300k 8k", "-c", "flush", "-c", "abort")
	if output, err := command.CombinedOutput(); err == nil {
		t.Fatalf("qemu-io closed the file: %s", output)
	}
	content, err := os.ReadFile(path)
	if err != nil || content[79]&1 == 0 {
		t.Fatalf("the file is not marked: %v", err)
	}
	overlay := open(t, path)
	var found []string
	for extent, err := range overlay.Extents() {
		if err != nil {
			t.Fatal(err)
		}
		first := make([]byte, 1)
		if err := overlay.ReadAt(first, extent, extent.Length-1); err != nil {
			t.Fatal(err)
		}
		found = append(found, fmt.Sprintf("%d+%d=%d", extent.Offset, extent.Length, first[0]))
	}
	if got := strings.Join(found, " "); got != "0+65536=1 307200+8192=2" {
		t.Errorf("got %s", got)
	}
}

func TestFieldsOutOfBoundsAreRefused(t *testing.T) {
	path := create(t, "cluster_size=128k,extended_l2=on", "64M")
	run(t, "qemu-io", "-f", "qcow2", "-c", "write -P 1 0 64k", path)
	valid, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	l1 := binary.BigEndian.Uint64(valid[40:])
	l2 := binary.BigEndian.Uint64(valid[l1:]) & 0x00fffffffffffe00
	for name, change := range map[string]func(file []byte){
		"magic":                     func(f []byte) { f[0] = 0 },
		"cluster bits":              func(f []byte) { binary.BigEndian.PutUint32(f[20:], 63) },
		"size":                      func(f []byte) { binary.BigEndian.PutUint64(f[24:], 1<<62) },
		"short L1":                  func(f []byte) { binary.BigEndian.PutUint32(f[36:], 0) },
		"L1 beyond the end":         func(f []byte) { binary.BigEndian.PutUint64(f[40:], 1<<40) },
		"L1 at a negative place":    func(f []byte) { binary.BigEndian.PutUint64(f[40:], 1<<63) },
		"corrupt":                   func(f []byte) { f[79] |= 2 },
		"unknown feature":           func(f []byte) { f[72] |= 1 },
		"header length":             func(f []byte) { binary.BigEndian.PutUint32(f[100:], 1<<31) },
		"L2 beyond the end":         func(f []byte) { binary.BigEndian.PutUint64(f[l1:], 1<<40) },
		"L2 not aligned":            func(f []byte) { binary.BigEndian.PutUint64(f[l1:], l2+512) },
		"cluster beyond the end":    func(f []byte) { binary.BigEndian.PutUint64(f[l2:], 1<<50) },
		"cluster at 0":              func(f []byte) { binary.BigEndian.PutUint64(f[l2:], 1<<63) },
		"data and zero at one time": func(f []byte) { binary.BigEndian.PutUint64(f[l2+8:], 1<<32|1) },
		"zero flag":                 func(f []byte) { f[l2+7] |= 1 },
		"one cluster everywhere": func(f []byte) {
			for at := l2; at < l2+128<<10; at += 16 {
				copy(f[at:at+16], f[l2:])
			}
		},
	} {
		changed := bytes.Clone(valid)
		change(changed)
		image, err := qcow2.Open(bytes.NewReader(changed), int64(len(changed)))
		if err == nil {
			err = scan(image)
		}
		if !errors.Is(err, qcow2.ErrRefused) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// scan reads all of the overlay, and checks what holds for any file.
func scan(image *qcow2.Image) error {
	buffer, end := make([]byte, 64<<10), int64(0)
	for extent, err := range image.Extents() {
		if err != nil {
			return err
		}
		if extent.Offset < end || extent.Length <= 0 || extent.Offset+extent.Length > image.Size() {
			return fmt.Errorf("extent %+v after %d", extent, end)
		}
		end = extent.Offset + extent.Length
		if extent.IsZero {
			continue
		}
		if err := image.ReadAt(buffer[:min(int64(len(buffer)), extent.Length)], extent, 0); err != nil {
			return err
		}
	}
	return nil
}

// TestDamagedTablesAreReadWithinBoundsOrRefused changes bytes of the header and of both tables at random.
func TestDamagedTablesAreReadWithinBoundsOrRefused(t *testing.T) {
	path := create(t, "cluster_size=16k,extended_l2=on", "8M")
	run(t, "qemu-io", "-f", "qcow2", "-c", "write -P 1 0 200k", "-c", "write -z 1M 64k", "-c", "write -P 2 3M 20k", path)
	valid, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	l1 := int(binary.BigEndian.Uint64(valid[40:]))
	l2 := int(binary.BigEndian.Uint64(valid[l1:]) & 0x00fffffffffffe00)
	random, refused := rand.New(rand.NewPCG(9, 9)), 0
	const rounds = 20_000
	for range rounds {
		changed := make(map[int]byte)
		for range 1 + random.IntN(3) {
			at := []int{random.IntN(112), l1 + random.IntN(16), l2 + random.IntN(16<<10), l2 + random.IntN(256)}[random.IntN(4)]
			if _, exists := changed[at]; !exists {
				changed[at] = valid[at]
			}
			valid[at] ^= 1 << random.IntN(8)
		}
		image, err := qcow2.Open(bytes.NewReader(valid), int64(len(valid)))
		if err == nil && image.Size() <= 1<<30 {
			err = scan(image)
		}
		if err != nil && !errors.Is(err, qcow2.ErrRefused) {
			t.Fatalf("neither valid nor refused: %v, %v", err, changed)
		}
		if err != nil {
			refused++
		}
		for at, before := range changed {
			valid[at] = before
		}
	}
	if refused < rounds/10 || refused == rounds {
		t.Errorf("%d of %d are refused", refused, rounds)
	}
}

func FuzzReader(f *testing.F) {
	for _, options := range []string{"cluster_size=16k,extended_l2=on", "cluster_size=512", "cluster_size=4k"} {
		path := create(f, options, "1M")
		run(f, "qemu-io", "-f", "qcow2", "-c", "write -P 1 0 20k", "-c", "write -z 64k 64k", path)
		content, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(content)
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		image, err := qcow2.Open(bytes.NewReader(content), int64(len(content)))
		if err != nil || image.Size() > 1<<30 {
			return
		}
		err = scan(image)
		if err != nil && !errors.Is(err, qcow2.ErrRefused) {
			t.Errorf("neither valid nor refused: %v", err)
		}
	})
}
