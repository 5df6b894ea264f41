package digest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// sumPlainly computes the digest by its definition.
func sumPlainly(content []byte) string {
	var sums []byte
	for len(content) > 0 {
		length := min(chunkBytes, len(content))
		sum := sha256.Sum256(content[:length])
		sums, content = append(sums, sum[:]...), content[length:]
	}
	sum := sha256.Sum256(sums)
	return hex.EncodeToString(sum[:])
}

func TestASparseFileHasTheSumOfItsContent(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, size := range []int{0, 1, 4096, chunkBytes - 1, chunkBytes, chunkBytes + 1, 3*chunkBytes + 4096, 9 * chunkBytes} {
		content := make([]byte, size)
		directory := t.TempDir()
		sparse, plain := filepath.Join(directory, "sparse"), filepath.Join(directory, "plain")
		must(t, os.WriteFile(sparse, nil, 0o600))
		must(t, os.Truncate(sparse, int64(size)))
		file, err := os.OpenFile(sparse, os.O_WRONLY, 0)
		must(t, err)
		for range size / chunkBytes / 2 {
			offset := random.IntN(size)
			part := content[offset:min(size, offset+random.IntN(10_000))]
			for i := range part {
				part[i] = byte(random.Uint32())
			}
			_, err := file.WriteAt(part, int64(offset))
			must(t, err)
		}
		must(t, file.Close())
		must(t, os.WriteFile(plain, content, 0o600))
		want := Sum{SizeBytes: int64(size), Digest: sumPlainly(content)}
		for _, path := range []string{sparse, plain} {
			if got, err := Path(path); err != nil || got != want {
				t.Errorf("%s of %d bytes: %+v, %v instead of %+v", filepath.Base(path), size, got, err, want)
			}
		}
	}
}

func TestASingleBitChangesTheSum(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	content := bytes.Repeat([]byte{1}, 2*chunkBytes+5)
	must(t, os.WriteFile(path, content, 0o600))
	before, err := Path(path)
	must(t, err)
	content[len(content)-1] ^= 1
	must(t, os.WriteFile(path, content, 0o600))
	if after, err := Path(path); err != nil || after.Digest == before.Digest {
		t.Errorf("%+v, %v", after, err)
	}
}

func TestWhatIsNoFileIsAnError(t *testing.T) {
	directory := t.TempDir()
	pipe := filepath.Join(directory, "pipe")
	must(t, unix.Mkfifo(pipe, 0o600))
	for _, path := range []string{pipe, directory, "/dev/zero", filepath.Join(directory, "absent")} {
		if sum, err := Path(path); err == nil {
			t.Errorf("%s: %+v", path, sum)
		}
	}
}
