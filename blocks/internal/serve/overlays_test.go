package serve_test

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"coppice/blocks/internal/serve"
)

func TestOverlaysAreOpenedBelowTheirDirectoryOnly(t *testing.T) {
	root := t.TempDir()
	overlays := filepath.Join(root, "overlays")
	steps := []error{
		os.MkdirAll(filepath.Join(overlays, "vm", "disks"), 0o700),
		os.WriteFile(filepath.Join(overlays, "vm", "disks", "0"), []byte("data"), 0o600),
		os.WriteFile(filepath.Join(root, "secret"), []byte("secret"), 0o600),
		os.Symlink(filepath.Join(root, "secret"), filepath.Join(overlays, "vm", "link")),
		os.Symlink(root, filepath.Join(overlays, "out")),
	}
	for _, err := range steps {
		if err != nil {
			t.Fatal(err)
		}
	}
	directory, err := os.Open(overlays)
	if err != nil {
		t.Fatal(err)
	}
	defer directory.Close()
	beneath := serve.Beneath{Directory: int(directory.Fd())}
	file, err := beneath.Open("vm/disks/0")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if content, err := io.ReadAll(file); string(content) != "data" || err != nil {
		t.Errorf("%q, %v", content, err)
	}
	for _, name := range []string{"", "../secret", "vm/../../secret", filepath.Join(root, "secret"), "vm/link", "out/secret", "vm/none", "vm/disks/0/x"} {
		if file, err := beneath.Open(name); err == nil {
			t.Errorf("%q is opened", name)
			_ = file.Close()
		}
	}
}
