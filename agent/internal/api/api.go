// Package api turns functions that may fail into HTTP handlers. It has one router and one format of errors.
package api

import (
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"

	"coppice/agent/internal/fault"
)

// maxBodyBytes bounds every JSON request body; the largest is the environment of resume.
const maxBodyBytes = 4 << 20

// Handler answers a request or fails before its status has been sent.
type Handler func(w http.ResponseWriter, r *http.Request) error

// Router maps "METHOD /path" to a handler. Paths have no parameters, so a map is enough.
type Router map[string]Handler

func (routes Router) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	handler, ok := routes[r.Method+" "+r.URL.Path]
	if !ok {
		WriteError(w, fault.New(fault.NotFound, "the agent has no %s %s", r.Method, r.URL.Path))
		return
	}
	if err := handler(w, r); err != nil {
		WriteError(w, err)
	}
}

// WriteError sends err as status and {"code","message"}.
func WriteError(w http.ResponseWriter, err error) {
	known := fault.From(err)
	if known.Code == fault.Internal {
		slog.Error("request failed", "error", err)
	}
	WriteJSON(w, known.Status(), map[string]string{"code": string(known.Code), "message": known.Message})
}

// WriteJSON sends value as the whole body.
func WriteJSON(w http.ResponseWriter, status int, value any) {
	body, err := json.Marshal(value)
	if err != nil {
		slog.Error("cannot encode the answer", "error", err)
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	w.Header().Set("content-type", "application/json")
	w.WriteHeader(status)
	if _, err := w.Write(body); err != nil {
		slog.Debug("client left before its answer", "error", err)
	}
}

// ReadJSON decodes the body into value. An empty body counts as {}. Unknown fields are ignored, because newer runners
// talk to older agents.
func ReadJSON(r *http.Request, value any) error {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBodyBytes+1))
	if err != nil {
		return fault.Invalid("body: ended early: %v", err)
	}
	if len(body) > maxBodyBytes {
		return fault.Invalid("body: longer than %d bytes", maxBodyBytes)
	}
	if len(body) == 0 {
		return nil
	}
	return DecodeJSON("body", body, value)
}

// DecodeJSON parses one JSON value. Its errors name the field.
func DecodeJSON(name string, text []byte, value any) error {
	err := json.Unmarshal(text, value)
	if err == nil {
		return nil
	}
	var mismatch *json.UnmarshalTypeError
	if errors.As(err, &mismatch) && mismatch.Field != "" {
		return fault.Invalid("%s: %s must be of type %s, not %s", name, mismatch.Field, mismatch.Type, mismatch.Value)
	}
	return fault.Invalid("%s: not valid JSON: %v", name, err)
}
