package objects

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/transport/http"
)

const maxErrorText = 300

// OpenS3 opens a bucket. Its credentials come from the standard chain: environment, files, web identity, container or
// instance. A server that is away is no error.
func OpenS3(ctx context.Context, at Location) (*S3, error) {
	options := []func(*config.LoadOptions) error{
		config.WithRegion(at.Region),
		// Retry repeats requests: it knows which object an operation wrote.
		config.WithRetryer(func() aws.Retryer { return aws.NopRetryer{} }),
		// Many servers do not know these checksums; those of the signature remain, and frames have hashes.
		config.WithRequestChecksumCalculation(aws.RequestChecksumCalculationWhenRequired),
		config.WithResponseChecksumValidation(aws.ResponseChecksumValidationWhenRequired),
	}
	if at.CAPath != "" {
		authorities, err := os.ReadFile(at.CAPath)
		if err != nil {
			return nil, fmt.Errorf("reading the authorities of the object store: %w", err)
		}
		options = append(options, config.WithCustomCABundle(bytes.NewReader(authorities)))
	}
	loaded, err := config.LoadDefaultConfig(ctx, options...)
	if err != nil {
		return nil, fmt.Errorf("opening the object store: %w", err)
	}
	client := s3.NewFromConfig(loaded, func(o *s3.Options) {
		o.UsePathStyle = at.IsPathStyle
		if at.Endpoint != "" {
			o.BaseEndpoint = aws.String(at.Endpoint)
		}
	})
	store := &S3{client: client, bucket: at.Bucket, prefix: at.Prefix}
	if store.prefix != "" {
		store.prefix += "/"
	}
	return store, nil
}

// classify reduces an error of the client to what an operator should see: its errors may contain keys and signatures.
func classify(err error) error {
	if err == nil {
		return nil
	}
	var response *http.ResponseError
	if !errors.As(err, &response) {
		return fmt.Errorf("%w: %s", ErrUnavailable, describe(err))
	}
	status, code := response.HTTPStatusCode(), codeOf(err)
	switch {
	case code == "NoSuchKey" || code == "NotFound" || code == "InvalidRange" || status == 416:
		return fmt.Errorf("%w (%s)", ErrNotFound, code)
	case isTransient(status, code):
		return fmt.Errorf("%w: it answered %d %s", ErrUnavailable, status, code)
	case status < 300:
		// The status arrived, the rest of the answer did not.
		return fmt.Errorf("%w: %s", ErrUnavailable, describe(err))
	default:
		return fmt.Errorf("the object store refused it with %d %s", status, code)
	}
}

func isTransient(status int, code string) bool {
	switch code {
	case "ConditionalRequestConflict", "ExpiredToken", "OperationAborted", "RequestTimeout", "SlowDown":
		return true
	}
	isBusy := status == 408 || status == 425 || status == 429
	return isBusy || status >= 500 && status != 501
}

func isPreconditionFailure(err error) bool {
	var response *http.ResponseError
	return errors.As(err, &response) && response.HTTPStatusCode() == 412
}

func codeOf(err error) string {
	var fault smithy.APIError
	if errors.As(err, &fault) {
		return fault.ErrorCode()
	}
	return ""
}

// describe returns the innermost cause, for example "connection refused".
func describe(err error) string {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			break
		}
		err = inner
	}
	text := err.Error()
	if before, _, ok := strings.Cut(text, "?"); ok {
		text = before // no query of a request, which may be signed
	}
	return text[:min(len(text), maxErrorText)]
}
