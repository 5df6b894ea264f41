// Package fault defines the agent's one error type. An error has a code of the product's error table, and a message
// that names the field or the step and the remedy.
package fault

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"golang.org/x/sys/unix"
)

// Code is one of the codes of packages/contract/src/errors.ts.
type Code string

// The codes of the agent's errors.
const (
	InvalidRequest  Code = "invalid_request"
	InvalidImage    Code = "invalid_image"
	NotFound        Code = "not_found"
	FileNotFound    Code = "file_not_found"
	FileError       Code = "file_error"
	InvalidState    Code = "invalid_state"
	AlreadyExists   Code = "already_exists"
	Capacity        Code = "capacity"
	Internal        Code = "internal"
	PortUnreachable Code = "port_unreachable"
	DiskFull        Code = "disk_full"
)

var statusOf = map[Code]int{
	InvalidRequest:  400,
	InvalidImage:    400,
	NotFound:        404,
	FileNotFound:    404,
	FileError:       400,
	InvalidState:    409,
	AlreadyExists:   409,
	Capacity:        429,
	Internal:        500,
	PortUnreachable: 502,
	DiskFull:        507,
}

// Error is an answer with a status of 4xx or 5xx.
type Error struct {
	Code    Code
	Message string
	cause   error
}

// New returns an Error whose message is shown to the caller.
func New(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Invalid returns an invalid_request error. The message names the field and the remedy.
func Invalid(format string, args ...any) *Error {
	return New(InvalidRequest, format, args...)
}

func (e *Error) Error() string { return string(e.Code) + ": " + e.Message }

func (e *Error) Unwrap() error { return e.cause }

// Status returns the HTTP status of the error's code.
func (e *Error) Status() int { return statusOf[e.Code] }

// From returns the Error in err's chain, or wraps err as internal.
func From(err error) *Error {
	var known *Error
	if errors.As(err, &known) {
		return known
	}
	return &Error{Code: Internal, Message: err.Error(), cause: err}
}

// errnoCode maps errnos of file operations to codes of their own. All other errnos become file_error: the files and
// file systems are the guest's, so their failures are not faults of the agent.
var errnoCode = map[syscall.Errno]Code{
	syscall.ENOENT: FileNotFound,
	syscall.ENOSPC: DiskFull,
	syscall.EDQUOT: DiskFull,
}

// FromFile turns the failure of a file operation into an Error that names its errno. step is a phrase such as
// "cannot open /a/b".
func FromFile(step string, err error) *Error {
	var known *Error
	if errors.As(err, &known) {
		return known
	}
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		return &Error{Code: Internal, Message: step + ": " + reasonOf(err), cause: err}
	}
	code, ok := errnoCode[errno]
	if !ok {
		code = FileError
	}
	return &Error{Code: code, Message: step + ": " + describe(errno), cause: err}
}

// describe returns a text such as "permission denied (EACCES)".
func describe(errno syscall.Errno) string {
	name := unix.ErrnoName(errno)
	if name == "" {
		name = fmt.Sprintf("errno %d", int(errno))
	}
	return fmt.Sprintf("%s (%s)", errno, name)
}

// reasonOf returns err's message without the path, because the step already names the path.
func reasonOf(err error) string {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err.Error()
	}
	return err.Error()
}
