package files

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"

	"coppice/agent/internal/fault"
	"coppice/agent/internal/guestfile"
)

// Get answers GET and HEAD /files. It reads the first bytes before it writes the answer's head, so that a file that
// cannot be read is refused with its errno.
func (s *Service) Get(w http.ResponseWriter, r *http.Request) error {
	path, err := s.locate(r.URL.Query())
	if err != nil {
		return err
	}
	file, info, err := guestfile.OpenRegular(path)
	if err != nil {
		return fault.FromFile("cannot open "+path, err)
	}
	defer closeLogged(file)
	buffer, _ := copyBuffers.Get().(*[copyBytes]byte)
	defer copyBuffers.Put(buffer)
	found, err := begin(file, info.Size(), r.Header.Get("range"), buffer[:])
	if err != nil {
		return fault.FromFile("cannot read "+path, err)
	}
	found.writeHead(w)
	if r.Method == http.MethodGet && found.kind != unsatisfiable {
		found.send(w, buffer[:])
	}
	return nil
}

func (d *download) writeHead(w http.ResponseWriter) {
	header := w.Header()
	header.Set("content-type", "application/octet-stream")
	if d.size == unknownSize {
		w.WriteHeader(http.StatusOK)
		return
	}
	header.Set("accept-ranges", "bytes")
	switch d.kind {
	case unsatisfiable:
		header.Set("content-range", fmt.Sprintf("bytes */%d", d.size))
		header.Set("content-length", "0")
		w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
	case partOfFile:
		header.Set("content-range", fmt.Sprintf("bytes %d-%d/%d", d.part.first, d.part.first+d.part.length-1, d.size))
		header.Set("content-length", strconv.FormatInt(d.part.length, 10))
		w.WriteHeader(http.StatusPartialContent)
	case wholeFile:
		header.Set("content-length", strconv.FormatInt(d.part.length, 10))
		w.WriteHeader(http.StatusOK)
	}
}

// send writes the bytes that were read and those that follow. The head has been sent, so a failure can only reset the
// stream: missing bytes must not look like the end of the file. buffer may be the one that holds first.
func (d *download) send(w http.ResponseWriter, buffer []byte) {
	if _, err := w.Write(d.first); err != nil {
		slog.Debug("client left during a download", "error", err)
		return
	}
	source := &fileReader{file: d.file}
	var rest io.Reader = source
	if d.size != unknownSize {
		rest = io.LimitReader(source, d.part.length-int64(len(d.first)))
	}
	sent, err := io.CopyBuffer(struct{ io.Writer }{w}, rest, buffer)
	sent += int64(len(d.first))
	if err != nil && source.err == nil {
		slog.Debug("client left during a download", "error", err)
		return
	}
	if err != nil || (d.size != unknownSize && sent < d.part.length) {
		slog.Warn("cannot send a file to its end", "file", d.file.Name(), "sent", sent, "size", d.size, "error", err)
		panic(http.ErrAbortHandler)
	}
}

// fileReader keeps the file's error separate from the client's.
type fileReader struct {
	file io.Reader
	err  error
}

func (f *fileReader) Read(buffer []byte) (int, error) {
	n, err := f.file.Read(buffer)
	if err != nil && !errors.Is(err, io.EOF) {
		f.err = err
	}
	return n, err
}

// closer is an open file or directory.
type closer interface {
	Close() error
	Name() string
}

func closeLogged(file closer) {
	if err := file.Close(); err != nil {
		slog.Error("close failed", "file", file.Name(), "error", err)
	}
}
