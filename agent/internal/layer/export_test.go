package layer

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

type entry struct {
	head    *tar.Header
	content string
}

// overlay mounts an overlay over an image, lets change work in it, and returns what the export of its changes has.
func overlay(t *testing.T, image, change func(root string) error) map[string]entry {
	t.Helper()
	place := t.TempDir()
	// The upper directory must be on a file system with trusted attributes, which is not always that of the test.
	if err := unix.Mount("tmpfs", place, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(place, unix.MNT_DETACH) })
	lower, upper, work, merged := place+"/lower", place+"/upper", place+"/work", place+"/merged"
	for _, directory := range []string{lower, upper, work, merged} {
		if err := os.Mkdir(directory, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := image(lower); err != nil {
		t.Fatal(err)
	}
	options := "redirect_dir=on,lowerdir=" + lower + ",upperdir=" + upper + ",workdir=" + work
	if err := unix.Mount("overlay", merged, "overlay", 0, options); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(merged, unix.MNT_DETACH) })
	if err := change(merged); err != nil {
		t.Fatal(err)
	}
	found, err := exported(t, upper, merged)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func exported(t *testing.T, upper, merged string) (map[string]entry, error) {
	t.Helper()
	top, err := os.Open(upper)
	if err != nil {
		t.Fatal(err)
	}
	defer top.Close()
	root, err := os.Open(merged)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	var archive bytes.Buffer
	if err := write(context.Background(), &archive, top, root); err != nil {
		return nil, err
	}
	found := map[string]entry{}
	reader := tar.NewReader(&archive)
	for {
		head, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(reader)
		if err != nil {
			t.Fatal(err)
		}
		found[head.Name] = entry{head, string(content)}
	}
}

func namesOf(found map[string]entry) []string {
	var names []string
	for name := range found {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func writeFile(path, content string) error { return os.WriteFile(path, []byte(content), 0o600) }

func TestALayerHasWhatWasAddedChangedAndRemoved(t *testing.T) {
	found := overlay(t, func(root string) error {
		return errors.Join(writeFile(root+"/kept", "k"), writeFile(root+"/gone", "g"), writeFile(root+"/changed", "old"))
	}, func(root string) error {
		return errors.Join(
			os.Remove(root+"/gone"), writeFile(root+"/changed", "new"), os.Chown(root+"/changed", 1000, 1001),
			os.Mkdir(root+"/made", 0o751), writeFile(root+"/made/file", "content"), unix.Chmod(root+"/made/file", 0o4755),
			os.Link(root+"/made/file", root+"/made/second"), os.Symlink("/made/file", root+"/link"),
			unix.Mkfifo(root+"/pipe", 0o600),
			unix.Setxattr(root+"/made/file", "security.capability", []byte("\x01\x00\x00\x02\x00\x20\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"), 0),
		)
	})
	want := []string{"./", ".wh.gone", "changed", "link", "made/", "made/.wh..wh..opq", "made/file", "made/second", "pipe"}
	if names := namesOf(found); !slices.Equal(names, want) {
		t.Fatalf("%q", names)
	}
	changed := found["changed"]
	if changed.content != "new" || changed.head.Uid != 1000 || changed.head.Gid != 1001 || changed.head.Mode != 0o600 {
		t.Errorf("%+v", changed)
	}
	names := []string{"made/file", "made/second"}
	links := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return found[name].head.Typeflag != tar.TypeLink })
	if len(links) != 1 || !slices.Contains(names, found[links[0]].head.Linkname) {
		t.Errorf("hard links: %q", links)
	}
	file := found[slices.DeleteFunc(names, func(name string) bool { return name == links[0] })[0]]
	// A change of the owner or the content would remove the set-user-ID bit and the capability.
	if file.head.Mode != 0o4755 || !strings.HasPrefix(file.head.PAXRecords["SCHILY.xattr.security.capability"], "\x01\x00\x00\x02") {
		t.Errorf("%+v", file.head)
	}
	if found["link"].head.Linkname != "/made/file" || found["made/"].head.Mode != 0o751 {
		t.Errorf("%+v %+v", found["link"].head, found["made/"].head)
	}
}

func TestADirectoryThatWasRemovedAndMadeAgainHidesTheImages(t *testing.T) {
	found := overlay(t, func(root string) error {
		return errors.Join(os.Mkdir(root+"/d", 0o755), writeFile(root+"/d/old", ""))
	}, func(root string) error {
		return errors.Join(os.RemoveAll(root+"/d"), os.Mkdir(root+"/d", 0o755), writeFile(root+"/d/new", ""))
	})
	if names := namesOf(found); !slices.Equal(names, []string{"./", "d/", "d/.wh..wh..opq", "d/new"}) {
		t.Fatalf("%q", names)
	}
	for name := range found["d/"].head.PAXRecords {
		t.Errorf("the kernel's attribute %s is in the layer", name)
	}
}

func TestARenamedDirectoryOfTheImageIsWholeInTheLayer(t *testing.T) {
	found := overlay(t, func(root string) error {
		return errors.Join(
			os.MkdirAll(root+"/a/b/c", 0o755), writeFile(root+"/a/b/c/file", "of the image"), writeFile(root+"/a/gone", ""),
		)
	}, func(root string) error {
		return errors.Join(os.Remove(root+"/a/gone"), os.Rename(root+"/a", root+"/z"), writeFile(root+"/z/b/added", "added"))
	})
	want := []string{"./", ".wh.a", "z/", "z/.wh..wh..opq", "z/b/", "z/b/added", "z/b/c/", "z/b/c/file"}
	if names := namesOf(found); !slices.Equal(names, want) {
		t.Fatalf("%q", names)
	}
	if found["z/b/c/file"].content != "of the image" {
		t.Errorf("%+v", found["z/b/c/file"])
	}
}

func TestFilesOfTheAgentAndMountPointsAreLeftOut(t *testing.T) {
	found := overlay(t, func(string) error { return nil }, func(root string) error {
		for _, name := range []string{"etc", "proc", "sys", "dev", "run"} {
			if err := os.Mkdir(root+"/"+name, 0o755); err != nil {
				return err
			}
		}
		for name := range left {
			if err := writeFile(filepath.Join(root, name), "the agent's"); err != nil {
				return err
			}
		}
		return writeFile(root+"/etc/passwd", "kept")
	})
	if names := namesOf(found); !slices.Equal(names, []string{"./", "etc/", "etc/.wh..wh..opq", "etc/passwd"}) {
		t.Fatalf("%q", names)
	}
}

func TestANameThatALayerCannotHoldIsRefused(t *testing.T) {
	upper := t.TempDir()
	if err := writeFile(upper+"/.wh.passwd", ""); err != nil {
		t.Fatal(err)
	}
	if _, err := exported(t, upper, upper); err == nil || !strings.Contains(err.Error(), ".wh.passwd") {
		t.Fatal(err)
	}
}

func TestWhatIsMountedInARenamedDirectoryIsLeftOut(t *testing.T) {
	found := overlay(t, func(root string) error {
		return errors.Join(
			os.MkdirAll(root+"/a/proc", 0o751), os.MkdirAll(root+"/a/data", 0o755), writeFile(root+"/a/data/under", "of the image"),
			writeFile(root+"/a/file", "of the image"),
		)
	}, func(root string) error {
		secret := t.TempDir()
		for _, mount := range []string{"/z/proc", "/z/data", "/z/file"} {
			t.Cleanup(func() { _ = unix.Unmount(root+mount, unix.MNT_DETACH) })
		}
		return errors.Join(
			os.Rename(root+"/a", root+"/z"),
			unix.Mount("proc", root+"/z/proc", "proc", 0, ""),
			writeFile(secret+"/secret", "a secret"), unix.Mount(secret, root+"/z/data", "", unix.MS_BIND, ""),
			unix.Mount(secret+"/secret", root+"/z/file", "", unix.MS_BIND, ""),
		)
	})
	want := []string{"./", ".wh.a", "z/", "z/.wh..wh..opq", "z/data/", "z/data/under", "z/file", "z/proc/"}
	if names := namesOf(found); !slices.Equal(names, want) {
		t.Fatalf("%q", names)
	}
	if found["z/file"].content != "of the image" || found["z/proc/"].head.Mode != 0o751 {
		t.Errorf("%+v %+v", found["z/file"], found["z/proc/"].head)
	}
}

func TestAMountPointInTheUpperDirectoryIsAnEmptyDirectory(t *testing.T) {
	upper := t.TempDir()
	if err := errors.Join(os.Mkdir(upper+"/mounted", 0o755), unix.Mount("tmpfs", upper+"/mounted", "tmpfs", 0, "mode=711")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(upper+"/mounted", unix.MNT_DETACH) })
	if err := writeFile(upper+"/mounted/secret", ""); err != nil {
		t.Fatal(err)
	}
	found, err := exported(t, upper, upper)
	if err != nil {
		t.Fatal(err)
	}
	if names := namesOf(found); !slices.Equal(names, []string{"./", "mounted/"}) || found["mounted/"].head.Mode != 0o711 {
		t.Fatalf("%q", names)
	}
}

func TestAttributesAreReadIntoTheSameBuffer(t *testing.T) {
	place := t.TempDir()
	if err := unix.Mount("tmpfs", place, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(place, unix.MNT_DETACH) })
	e := &export{buffer: make([]byte, copyBytes)}
	for _, value := range []string{strings.Repeat("long", 100), "short"} {
		file, err := os.Create(place + "/" + value[:5])
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		for _, name := range []string{"trusted.one", "trusted.two"} {
			if err := unix.Fsetxattr(int(file.Fd()), name, []byte(value), 0); err != nil {
				t.Fatal(err)
			}
		}
		const rounds = 100
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range rounds {
			found, err := e.readXattrs(file)
			if err != nil || len(found) != 2 || found["trusted.one"] != value || found["trusted.two"] != value {
				t.Fatalf("%q %v", found, err)
			}
		}
		runtime.ReadMemStats(&after)
		if each := (after.TotalAlloc - before.TotalAlloc) / rounds; each > maxXattrBytes/8 {
			t.Errorf("%d bytes are allocated for each file", each)
		}
	}
}
