package files

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestDownloadServesWholeFilesRangesAndHeads(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/f", []byte("0123456789"), 0o600); err != nil {
		t.Fatal(err)
	}
	routes := newRoutes(dir)
	cases := []struct {
		asked         string
		status        int
		body, content string
	}{
		{"", 200, "0123456789", ""},
		{"bytes=2-4", 206, "234", "bytes 2-4/10"},
		{"bytes=7-", 206, "789", "bytes 7-9/10"},
		{"bytes=7-100", 206, "789", "bytes 7-9/10"},
		{"bytes=-3", 206, "789", "bytes 7-9/10"},
		{"bytes=10-", 416, "", "bytes */10"},
		{"bytes=0-1,3-4", 200, "0123456789", ""},
		{"lines=1-2", 200, "0123456789", ""},
	}
	for _, c := range cases {
		answer := do(routes, "GET", "/files", "f", nil, "range", c.asked)
		if answer.Code != c.status || answer.Body.String() != c.body || answer.Header().Get("content-range") != c.content {
			t.Errorf("%q: %d %q %q", c.asked, answer.Code, answer.Body, answer.Header().Get("content-range"))
		}
	}
	head := do(routes, "HEAD", "/files", "f", nil)
	if head.Code != 200 || head.Header().Get("content-length") != "10" || head.Body.Len() != 0 {
		t.Error(head.Code, head.Header(), head.Body)
	}
}

func TestDownloadRefusesWhatIsNoFile(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mkfifo(dir+"/pipe", 0o600); err != nil {
		t.Fatal(err)
	}
	routes := newRoutes(dir)
	expect(t, do(routes, "GET", "/files", "missing", nil), 404, "file_not_found")
	for _, path := range []string{dir, "pipe", "/dev/zero", "", "a\x00b"} {
		expect(t, do(routes, "GET", "/files", path, nil), 400, "invalid_request")
	}
}

func FuzzRange(f *testing.F) {
	f.Add("bytes=0-0", int64(1))
	f.Add("bytes=-99999999999999999999", int64(10))
	f.Add("bytes=5-1", int64(0))
	f.Fuzz(func(t *testing.T, header string, size int64) {
		if size < 0 {
			return
		}
		part, kind := parseRange(header, size)
		if kind != unsatisfiable && (part.first < 0 || part.length < 0 || part.first+part.length > size) {
			t.Fatalf("%q of %d: %+v", header, size, part)
		}
		if kind == partOfFile && part.length == 0 {
			t.Fatalf("%q of %d is empty", header, size)
		}
	})
}

func TestFilesWhoseSizeIsNotWhatStatSaysAreReadToTheirEnd(t *testing.T) {
	routes := newRoutes("/")
	for _, path := range []string{"/proc/version", "/proc/sys/kernel/ostype", "/sys/class/net/lo/mtu", "/sys/kernel/uevent_seqnum"} {
		want := content(t, path)
		answer := do(routes, "GET", "/files", path, nil)
		if answer.Code != 200 || answer.Body.String() != want || answer.Header().Get("content-length") != strconv.Itoa(len(want)) {
			t.Errorf("%s: %d %q %v, want %q", path, answer.Code, answer.Body, answer.Header(), want)
		}
		part := do(routes, "GET", "/files", path, nil, "range", "bytes=1-2")
		if part.Code != 206 || part.Body.String() != want[1:3] {
			t.Errorf("%s: %d %q", path, part.Code, part.Body)
		}
		head := do(routes, "HEAD", "/files", path, nil)
		if head.Code != 200 || head.Body.Len() != 0 || head.Header().Get("content-length") != strconv.Itoa(len(want)) {
			t.Errorf("%s: %d %v", path, head.Code, head.Header())
		}
	}
}

func TestALongFileOfTheKernelHasNoSizeAndIgnoresRanges(t *testing.T) {
	const path = "/proc/kallsyms"
	want := content(t, path)
	if len(want) <= copyBytes {
		t.Fatalf("%s has only %d bytes", path, len(want))
	}
	answer := do(newRoutes("/"), "GET", "/files", path, nil, "range", "bytes=1-2")
	header := answer.Header()
	if answer.Code != 200 || header.Get("content-length") != "" || header.Get("accept-ranges") != "" || answer.Body.String() != want {
		t.Fatalf("%d %v, %d bytes, want %d", answer.Code, header, answer.Body.Len(), len(want))
	}
}

func TestAnEmptyFileIsEmpty(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/empty", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	answer := do(newRoutes(dir), "GET", "/files", "empty", nil)
	if answer.Code != 200 || answer.Header().Get("content-length") != "0" || answer.Body.Len() != 0 {
		t.Fatal(answer.Code, answer.Header(), answer.Body)
	}
}

func TestAFileThatCannotBeReadIsRefusedWithItsErrno(t *testing.T) {
	// Every process has this file. Its reads at offset 0 fail, because nothing is mapped there.
	expect(t, do(newRoutes("/"), "GET", "/files", "/proc/self/mem", nil), 400, "(EIO)")
	expect(t, do(newRoutes("/"), "GET", "/files", "/proc/self/mem", nil), 400, "file_error")
	expect(t, do(newRoutes("/"), "GET", "/files", "/"+strings.Repeat("x", 300), nil), 400, "(ENAMETOOLONG)")
	expect(t, do(newRoutes("/"), "GET", "/files", "/dev/null/x", nil), 400, "(ENOTDIR)")
}

// fakeFile has content. After the content it fails with err, if that is not nil.
type fakeFile struct {
	*bytes.Reader
	err error
}

func newFakeFile(size int, err error) *fakeFile {
	return &fakeFile{bytes.NewReader(bytes.Repeat([]byte("x"), size)), err}
}

func (f *fakeFile) Name() string { return "fake" }

func (f *fakeFile) Read(buffer []byte) (int, error) {
	n, err := f.Reader.Read(buffer)
	if errors.Is(err, io.EOF) && f.err != nil {
		return n, f.err
	}
	return n, err
}

func TestAFileThatIsShorterThanStatedIsMeasured(t *testing.T) {
	var buffer [copyBytes]byte
	for _, c := range []struct {
		ranges string
		kind   rangeKind
		first  int
	}{{"", wholeFile, 100}, {"bytes=90-", partOfFile, 10}, {"bytes=4000-", unsatisfiable, 0}} {
		d, err := beginStated(newFakeFile(100, nil), 4096, c.ranges, buffer[:])
		if err != nil || d.size != 100 || d.kind != c.kind || len(d.first) != c.first {
			t.Errorf("%q: %+v %v", c.ranges, d, err)
		}
	}
}

func TestAFileThatFailsAtItsStartIsRefused(t *testing.T) {
	var buffer [copyBytes]byte
	for _, stated := range []int64{100, copyBytes} {
		if _, err := beginStated(newFakeFile(50, unix.EIO), stated, "", buffer[:]); !errors.Is(err, unix.EIO) {
			t.Error(err)
		}
	}
	if _, err := measure(newFakeFile(50, unix.EAGAIN), "", buffer[:]); !errors.Is(err, unix.EAGAIN) {
		t.Error(err)
	}
}

func TestAFileThatBreaksOffInTheMiddleEndsInAReset(t *testing.T) {
	const size = 2 * copyBytes
	for name, c := range map[string]struct {
		begin func(source, []byte) (*download, error)
		err   error
	}{
		"shrinks":                        {begin: stated(size + 1)},
		"fails":                          {begin: stated(size + 1), err: unix.EIO},
		"fails, and its size is unknown": {begin: measured, err: unix.EIO},
	} {
		t.Run(name, func(t *testing.T) {
			var buffer [copyBytes]byte
			d, err := c.begin(newFakeFile(size, c.err), buffer[:])
			if err != nil {
				t.Fatal(err)
			}
			answer := httptest.NewRecorder()
			defer func() {
				if recover() != http.ErrAbortHandler || answer.Body.Len() != size {
					t.Fatal("the answer ended as if it were complete", answer.Body.Len())
				}
			}()
			d.writeHead(answer)
			d.send(answer, buffer[:])
		})
	}
}

func stated(size int64) func(source, []byte) (*download, error) {
	return func(file source, buffer []byte) (*download, error) { return beginStated(file, size, "", buffer) }
}

func measured(file source, buffer []byte) (*download, error) { return measure(file, "", buffer) }
