package drain_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"coppice/blocks/internal/blockmap"
	"coppice/blocks/internal/chain"
	"coppice/blocks/internal/drain"
	"coppice/blocks/internal/qcow2"
	"coppice/blocks/testing/memory"
)

func runTool(t testing.TB, program string, arguments ...string) {
	t.Helper()
	if output, err := exec.Command(program, arguments...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v\n%s", program, arguments, err, output)
	}
}

func openFile(t testing.TB, path string) *os.File {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	return file
}

func importTo(disks *chain.Disks, size int64, format string, file *os.File) (drain.Result, error) {
	job := chain.Import{Org: "o", Disk: "d", SizeBytes: size}
	return importImage(disks, job, drain.Image{Format: format, File: file})
}

func importImage(disks *chain.Disks, job chain.Import, image drain.Image) (drain.Result, error) {
	return drain.Import(context.Background(), disks, blockmap.NewSource(disks.Store, nil), job, image)
}

// expect compares the disk with a prefix, after which it has zeroes only.
func expect(t *testing.T, disks *chain.Disks, prefix []byte) {
	t.Helper()
	ctx := context.Background()
	head, err := disks.Head(ctx, "o", "d")
	if err != nil {
		t.Fatal(err)
	}
	root, _ := head.RootHash()
	version, err := blockmap.OpenVersion(ctx, blockmap.NewSource(disks.Store, nil), "o", root, head.SizeBytes)
	if err != nil {
		t.Fatal(err)
	}
	content := make([]byte, head.SizeBytes)
	if err := version.ReadAt(ctx, content, 0); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(content[:len(prefix)], prefix) || len(bytes.Trim(content[len(prefix):], "\x00")) > 0 {
		t.Error("the content differs")
	}
}

// sparse makes a file with data at odd places, of an odd size.
func sparse(t *testing.T) (*os.File, []byte) {
	path := filepath.Join(t.TempDir(), "image")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(5, 5))
	content := make([]byte, 9*mib+700)
	for _, at := range []int{0, 100_000, 3*mib + 511, len(content) - 1000} {
		part := text(random, 900)
		copy(content[at:], part)
		_, _ = file.WriteAt(part, int64(at))
	}
	_ = file.Close()
	return openFile(t, path), content
}

func TestImagesAreImportedWithPadding(t *testing.T) {
	for _, size := range []int64{0, 9*mib + 4096, 200*mib + 1} {
		raw, content := sparse(t)
		disks := chain.New(memory.New())
		result, err := importTo(disks, size, drain.FormatRaw, raw)
		if err != nil {
			t.Fatal(err)
		}
		wanted := (max(size, int64(len(content))) + 4095) / 4096 * 4096
		if result.Version.SizeBytes != wanted || result.Version.Number != 2 || result.Stats.FrameBytes > 30_000 {
			t.Errorf("%+v", result)
		}
		expect(t, disks, content)
		for _, options := range []string{"cluster_size=64k", "cluster_size=4k", "cluster_size=128k,extended_l2=on"} {
			image := filepath.Join(t.TempDir(), "image.qcow2")
			runTool(t, "qemu-img", "convert", "-f", "raw", "-O", "qcow2", "-o", options, raw.Name(), image)
			disks := chain.New(memory.New())
			if _, err := importTo(disks, size, drain.FormatQcow2, openFile(t, image)); err != nil {
				t.Fatal(err)
			}
			expect(t, disks, content)
		}
	}
}

func TestAnEmptyFileSystemOfAnySizeIsImportedAtOnce(t *testing.T) {
	for _, size := range []string{"1G", "1T", "16383G"} {
		path := filepath.Join(t.TempDir(), "image")
		runTool(t, "truncate", "-s", size, path)
		runTool(t, "mke2fs", "-q", "-t", "ext4", "-E", "lazy_itable_init=1,lazy_journal_init=1,nodiscard", "-F", path)
		disks, begin := chain.New(memory.New()), time.Now()
		result, err := importTo(disks, 0, drain.FormatRaw, openFile(t, path))
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %v, %+v", size, time.Since(begin), result.Stats)
	}
}

func TestAnImportMayCrashAnywhere(t *testing.T) {
	raw, content := sparse(t)
	errCrash := errors.New("crash")
	for crash := 1; ; crash++ {
		for _, isAfter := range []bool{false, true} {
			store := memory.New()
			var count atomic.Int64
			hook := func(string, string) error {
				if count.Add(1) >= int64(crash) {
					return errCrash
				}
				return nil
			}
			if isAfter {
				store.After = hook
			} else {
				store.Before = hook
			}
			_, err := importTo(chain.New(store), 0, drain.FormatRaw, raw)
			store.Before, store.After = nil, nil
			if err == nil {
				return
			}
			result, err := importTo(chain.New(store), 0, drain.FormatRaw, raw)
			if err != nil || result.Version.Number != 2 {
				t.Fatalf("crash at %d: version %d, %v", crash, result.Version.Number, err)
			}
			expect(t, chain.New(store), content)
			result, err = importTo(chain.New(store), 0, drain.FormatRaw, raw)
			if err != nil || result.Version.Number != 2 || !result.IsRepeated {
				t.Fatalf("a repetition: %+v, %v", result, err)
			}
		}
	}
}

func TestAnImportOverAnotherDiskIsRefused(t *testing.T) {
	ctx := context.Background()
	raw, _ := sparse(t)
	for name, prepare := range map[string]func(disks *chain.Disks) error{
		"created": func(disks *chain.Disks) error {
			_, err := disks.Create(ctx, "o", "d", 10*mib)
			return err
		},
		"imported with another size": func(disks *chain.Disks) error {
			_, err := importTo(disks, 20*mib, drain.FormatRaw, raw)
			return err
		},
		"imported and used": func(disks *chain.Disks) error {
			if _, err := importTo(disks, 10*mib, drain.FormatRaw, raw); err != nil {
				return err
			}
			_, err := disks.Take(ctx, "o", "d", "r", 0)
			drainChanges(t, disks, blockmap.NewSource(disks.Store, nil), chain.Holding{Org: "o", Disk: "d", Runner: "r", Epoch: 1}, 10*mib, nil)
			return err
		},
		"deleted": func(disks *chain.Disks) error {
			_, err := disks.Create(ctx, "o", "d", 10*mib)
			return errors.Join(err, disks.Delete(ctx, "o", "d"))
		},
	} {
		disks := chain.New(memory.New())
		if err := prepare(disks); err != nil {
			t.Fatal(err)
		}
		if _, err := importTo(disks, 10*mib, drain.FormatRaw, raw); !errors.Is(err, chain.ErrExists) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAnImportContinuesAfterAFence(t *testing.T) {
	ctx := context.Background()
	raw, content := sparse(t)
	store := memory.New()
	isFenced := false
	store.Before = func(operation, key string) error {
		if isFenced || !strings.HasPrefix(key, "disks/o/d/0000000002") || operation != "create" {
			return nil
		}
		isFenced = true
		collector := &chain.Collector{Disks: chain.New(store), Source: blockmap.NewSource(store, nil), UploadTime: -time.Hour}
		_, err := collector.Collect(ctx, "o")
		return err
	}
	result, err := importTo(chain.New(store), 0, drain.FormatRaw, raw)
	if err != nil || result.Version.Number != 3 {
		t.Fatalf("%+v %v", result, err)
	}
	expect(t, chain.New(store), content)
}

func TestImagesThatWouldBeReadWronglyMakeNoDisk(t *testing.T) {
	raw, _ := sparse(t)
	qcow := func(arguments ...string) *os.File {
		path := filepath.Join(t.TempDir(), "image.qcow2")
		runTool(t, "qemu-img", append(append([]string{"convert", "-f", "raw", "-O", "qcow2"}, arguments...), raw.Name(), path)...)
		return openFile(t, path)
	}
	for message, file := range map[string]*os.File{
		"compressed clusters":      qcow("-c"),
		"version 2 of the format":  qcow("-o", "compat=0.10"),
		"data is in another file":  qcow("-o", "data_file="+filepath.Join(t.TempDir(), "data")),
		"clusters of 512 bytes":    qcow("-o", "cluster_size=512"),
		"it is not a qcow2 file":   raw,
		"it has 9438208 bytes, th": qcow(),
	} {
		disks := chain.New(memory.New())
		size := int64(0)
		if strings.HasPrefix(message, "it has 9") {
			size = 4096
		}
		_, err := importTo(disks, size, drain.FormatQcow2, file)
		isKnown := errors.Is(err, qcow2.ErrRefused) && strings.Contains(err.Error(), "qemu-img convert") || errors.Is(err, drain.ErrImage)
		if !isKnown || !strings.Contains(err.Error(), message) {
			t.Errorf("%s: %v", message, err)
		}
		if _, err := disks.Head(context.Background(), "o", "d"); !errors.Is(err, chain.ErrNoDisk) {
			t.Errorf("%s: a disk was made: %v", message, err)
		}
	}
	if _, err := importTo(chain.New(memory.New()), 0, "vmdk", raw); !strings.Contains(fmt.Sprint(err), "must be raw or qcow2") {
		t.Error(err)
	}
}
