// Package fakes3 is an S3 server in memory, whose answers a test can disturb.
package fakes3

import (
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sort"
	"strconv"
	"strings"
	"sync"
)

// Fault disturbs one request.
type Fault int

// Faults.
const (
	None Fault = iota
	// Busy answers 503 SlowDown without a change.
	Busy
	// LoseAnswer does what is asked and breaks the connection.
	LoseAnswer
	// BreakBody sends half of the body of the answer.
	BreakBody
)

type object struct {
	content []byte
	writeID string
}

// Server has one bucket, named "bucket".
type Server struct {
	*httptest.Server
	// Rule may be set before requests are sent.
	Rule func(*http.Request) Fault

	mutex   sync.Mutex
	objects map[string]object
}

// Start starts a server that the caller closes.
func Start() *Server {
	server := &Server{objects: map[string]object{}}
	server.Server = httptest.NewServer(http.HandlerFunc(server.serve))
	return server
}

// Setting is the value of COPPICE_OBJECT_STORE for the server.
func (s *Server) Setting(prefix string) string {
	return fmt.Sprintf("s3://bucket/%s?endpoint=%s", prefix, s.URL)
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	fault := None
	if s.Rule != nil {
		fault = s.Rule(r)
	}
	if fault == Busy {
		refuse(w, http.StatusServiceUnavailable, "SlowDown")
		return
	}
	recorder := httptest.NewRecorder()
	s.answer(recorder, r)
	if fault == LoseAnswer {
		panic(http.ErrAbortHandler)
	}
	for name, values := range recorder.Header() {
		w.Header()[name] = values
	}
	body := recorder.Body.Bytes()
	if r.Method != http.MethodHead {
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	}
	w.WriteHeader(recorder.Code)
	if fault == BreakBody {
		_, _ = w.Write(body[:len(body)/2])
		panic(http.ErrAbortHandler)
	}
	_, _ = w.Write(body)
}

func (s *Server) answer(w http.ResponseWriter, r *http.Request) {
	key := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/bucket"), "/")
	body, _ := io.ReadAll(r.Body)
	s.mutex.Lock()
	defer s.mutex.Unlock()
	found, exists := s.objects[key]
	switch {
	case r.Method == http.MethodGet && key == "":
		s.list(w, r)
	case r.Method == http.MethodPut && exists && r.Header.Get("If-None-Match") == "*":
		refuse(w, http.StatusPreconditionFailed, "PreconditionFailed")
	case r.Method == http.MethodPut:
		s.objects[key] = object{content: body, writeID: r.Header.Get("X-Amz-Meta-Coppice-Write-Id")}
	case r.Method == http.MethodDelete:
		delete(s.objects, key)
		w.WriteHeader(http.StatusNoContent)
	case !exists:
		refuse(w, http.StatusNotFound, "NoSuchKey")
	default:
		w.Header().Set("X-Amz-Meta-Coppice-Write-Id", found.writeID)
		send(w, r, found.content)
	}
}

func send(w http.ResponseWriter, r *http.Request, content []byte) {
	var first int
	text := r.Header.Get("Range")
	if text == "" {
		_, _ = w.Write(content)
		return
	}
	last := len(content) - 1
	if n, _ := fmt.Sscanf(text, "bytes=%d-%d", &first, &last); n == 0 || first >= len(content) {
		refuse(w, http.StatusRequestedRangeNotSatisfiable, "InvalidRange")
		return
	}
	last = min(last, len(content)-1)
	w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", first, last, len(content)))
	w.WriteHeader(http.StatusPartialContent)
	_, _ = w.Write(content[first : last+1])
}

func (s *Server) list(w http.ResponseWriter, r *http.Request) {
	type entry struct {
		Key  string
		Size int
	}
	type listBucketResult struct {
		IsTruncated bool
		Contents    []entry
	}
	query := r.URL.Query()
	limit, _ := strconv.Atoi(query.Get("max-keys"))
	var result listBucketResult
	for key, found := range s.objects {
		if strings.HasPrefix(key, query.Get("prefix")) && key > query.Get("start-after") {
			result.Contents = append(result.Contents, entry{key, len(found.content)})
		}
	}
	sort.Slice(result.Contents, func(i, j int) bool { return result.Contents[i].Key < result.Contents[j].Key })
	// Short pages, so that tests reach the second one.
	if limit = min(limit, 3); len(result.Contents) > limit {
		result.Contents, result.IsTruncated = result.Contents[:limit], true
	}
	_ = xml.NewEncoder(w).EncodeElement(result, xml.StartElement{Name: xml.Name{Local: "ListBucketResult"}})
}

func refuse(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, "<Error><Code>%s</Code></Error>", code)
}
