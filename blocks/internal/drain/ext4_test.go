package drain_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"coppice/blocks/internal/chain"
	"coppice/blocks/internal/drain"
	"coppice/blocks/testing/memory"
)

// fileSystem makes a raw image.
func fileSystem(t *testing.T, size string, options ...string) string {
	path := filepath.Join(t.TempDir(), "image")
	runTool(t, "truncate", "-s", size, path)
	runTool(t, "mke2fs", append(append([]string{"-q", "-t", "ext4"}, options...), "-F", path)...)
	return path
}

func toQcow2(t *testing.T, raw string, options ...string) string {
	path := filepath.Join(t.TempDir(), "image.qcow2")
	runTool(t, "qemu-img", append(append([]string{"convert", "-f", "raw", "-O", "qcow2"}, options...), raw, path)...)
	return path
}

// patched returns a copy of an image with other bytes at an offset.
func patched(t *testing.T, image string, at int64, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "changed")
	runTool(t, "cp", "--sparse=always", image, path)
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err == nil {
		_, err = file.WriteAt(content, at)
	}
	if err = errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
	return path
}

func importExt4(t *testing.T, format, path string, maxBytes int64) (drain.Result, error) {
	t.Helper()
	disks := chain.New(memory.New())
	result, err := importImage(disks, chain.Import{Org: "o", Disk: "d"},
		drain.Image{Format: format, File: openFile(t, path), MaxBytes: maxBytes, FileSystem: drain.FileSystemExt4})
	if _, found := disks.Head(context.Background(), "o", "d"); err != nil && !errors.Is(found, chain.ErrNoDisk) {
		t.Errorf("a disk was made: %v", found)
	}
	return result, err
}

func TestFileSystemsOfAllBlockSizesAreImported(t *testing.T) {
	for _, options := range [][]string{{"-b", "1024"}, {"-b", "4096"}, {"-O", "64bit"}, {"-O", "^64bit"}} {
		raw := fileSystem(t, "48M", options...)
		for format, path := range map[string]string{
			drain.FormatRaw:   raw,
			drain.FormatQcow2: toQcow2(t, raw, "-o", "cluster_size=4k"),
		} {
			if result, err := importExt4(t, format, path, 48*mib); err != nil || result.Version.SizeBytes != 48*mib {
				t.Errorf("%v as %s: %+v, %v", options, format, result, err)
			}
		}
	}
}

func TestImagesWithoutAWholeExt4FileSystemMakeNoDisk(t *testing.T) {
	whole := fileSystem(t, "48M")
	cut := filepath.Join(t.TempDir(), "cut")
	runTool(t, "cp", whole, cut)
	runTool(t, "truncate", "-s", "47M", cut)
	empty := filepath.Join(t.TempDir(), "empty")
	runTool(t, "truncate", "-s", "48M", empty)
	tiny := filepath.Join(t.TempDir(), "tiny")
	runTool(t, "truncate", "-s", "2047", tiny)
	huge := binary.LittleEndian.AppendUint32(nil, 1<<31)
	for name, each := range map[string]struct{ path, message string }{
		"cut off":              {cut, "send all of it"},
		"nothing but zeroes":   {empty, "contains no ext4 file system"},
		"less than a block":    {tiny, "contains no ext4 file system"},
		"no magic number":      {patched(t, whole, 1080, []byte{0, 0}), "contains no ext4 file system"},
		"blocks of 2^41 bytes": {patched(t, whole, 1048, []byte{31}), "contains no ext4 file system"},
		"2^63 blocks":          {patched(t, whole, 1024+336, huge), "send all of it"},
	} {
		if _, err := importExt4(t, drain.FormatRaw, each.path, 0); !errors.Is(err, drain.ErrImage) || !strings.Contains(fmt.Sprint(err), each.message) {
			t.Errorf("%s: %v", name, err)
		}
		if name == "less than a block" {
			continue
		}
		if _, err := importExt4(t, drain.FormatQcow2, toQcow2(t, each.path), 0); !errors.Is(err, drain.ErrImage) || !strings.Contains(fmt.Sprint(err), each.message) {
			t.Errorf("%s as qcow2: %v", name, err)
		}
	}
}

func TestTheSizeThatAHeaderStatesIsLimited(t *testing.T) {
	raw := fileSystem(t, "48M")
	small := toQcow2(t, raw)
	grown := patched(t, small, 0, nil)
	runTool(t, "qemu-img", "resize", "-q", "-f", "qcow2", grown, "1T")
	for format, path := range map[string]string{drain.FormatRaw: raw, drain.FormatQcow2: small} {
		if _, err := importExt4(t, format, path, 48*mib-1); !errors.Is(err, drain.ErrTooLarge) {
			t.Errorf("%s: %v", format, err)
		}
	}
	if _, err := importExt4(t, drain.FormatRaw, small, 0); err == nil || !strings.Contains(err.Error(), "give its format") {
		t.Error(err)
	}
	if _, err := importExt4(t, drain.FormatQcow2, grown, 1<<39); !errors.Is(err, drain.ErrTooLarge) {
		t.Error(err)
	}
}

func TestAnImageThatReadsFilesOfTheHostMakesNoDisk(t *testing.T) {
	raw := fileSystem(t, "48M")
	backed := filepath.Join(t.TempDir(), "backed.qcow2")
	runTool(t, "qemu-img", "create", "-q", "-f", "qcow2", "-b", raw, "-F", "raw", backed)
	if _, err := importExt4(t, drain.FormatQcow2, backed, 0); err == nil || !strings.Contains(err.Error(), "names a backing file") {
		t.Error(err)
	}
}
