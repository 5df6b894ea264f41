package files

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strconv"

	"coppice/agent/internal/fault"
	"coppice/agent/internal/guestfile"
)

// Get answers GET and HEAD /files. The size is that of the file when opened; one that grows is cut there, one that
// shrinks ends the stream with a reset.
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
	size := info.Size()
	part, kind := parseRange(r.Header.Get("range"), size)
	header := w.Header()
	header.Set("content-type", "application/octet-stream")
	header.Set("accept-ranges", "bytes")
	switch kind {
	case unsatisfiable:
		header.Set("content-range", fmt.Sprintf("bytes */%d", size))
		header.Set("content-length", "0")
		w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
		return nil
	case partOfFile:
		header.Set("content-range", fmt.Sprintf("bytes %d-%d/%d", part.first, part.first+part.length-1, size))
	}
	if _, err := file.Seek(part.first, io.SeekStart); err != nil {
		return fault.FromFile("cannot read "+path, err)
	}
	header.Set("content-length", strconv.FormatInt(part.length, 10))
	w.WriteHeader(statusOf(kind))
	if r.Method == http.MethodGet {
		send(w, file, part.length)
	}
	return nil
}

func statusOf(kind rangeKind) int {
	if kind == partOfFile {
		return http.StatusPartialContent
	}
	return http.StatusOK
}

// send copies length bytes. The status is out, so a failure can only be a reset of the stream.
func send(w http.ResponseWriter, file *os.File, length int64) {
	buffer, _ := copyBuffers.Get().(*[copyBytes]byte)
	defer copyBuffers.Put(buffer)
	source := &fileReader{file: file}
	sent, err := io.CopyBuffer(struct{ io.Writer }{w}, io.LimitReader(source, length), buffer[:])
	if err != nil && source.err == nil {
		slog.Debug("client left a download", "error", err)
		return
	}
	if err != nil || sent < length {
		slog.Warn("file cannot be sent to its end", "file", file.Name(), "sent", sent, "size", length, "error", err)
		panic(http.ErrAbortHandler)
	}
}

// fileReader keeps the file's error apart from the client's.
type fileReader struct {
	file *os.File
	err  error
}

func (f *fileReader) Read(buffer []byte) (int, error) {
	n, err := f.file.Read(buffer)
	if err != nil && !errors.Is(err, io.EOF) {
		f.err = err
	}
	return n, err
}

func closeLogged(file *os.File) {
	if err := file.Close(); err != nil {
		slog.Error("close failed", "file", file.Name(), "error", err)
	}
}
