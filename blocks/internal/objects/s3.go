package objects

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

const (
	// writeIDMetadata is a random value that tells a writer whether an object is its own, when an answer was lost. The
	// TypeScript store uses the same name.
	writeIDMetadata = "coppice-write-id"
	pageSize        = 1000
)

// S3 keeps objects in a bucket of an S3 server.
type S3 struct {
	client *s3.Client
	bucket string
	// prefix is empty or ends with a slash.
	prefix string
}

// Put implements Store.
func (s *S3) Put(ctx context.Context, key string, content []byte) error {
	if err := CheckKey(key); err != nil {
		return err
	}
	return Retry(ctx, "putting "+key, func(ctx context.Context) error {
		body := &body{reader: bytes.NewReader(content)}
		defer body.end()
		put := s.newPut(key, content, newWriteID())
		put.Body = body
		_, err := s.client.PutObject(ctx, put)
		return classify(err)
	})
}

// body is the content of a request that ends with the call. The HTTP client may read on after it has failed; then it must
// not send what the memory contains by then.
type body struct {
	mutex   sync.Mutex
	reader  *bytes.Reader
	isEnded bool
}

func (b *body) Read(content []byte) (int, error) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	if b.isEnded {
		return 0, io.ErrUnexpectedEOF
	}
	return b.reader.Read(content)
}

func (b *body) Seek(offset int64, whence int) (int64, error) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.reader.Seek(offset, whence)
}

func (b *body) end() {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	b.isEnded = true
}

// PutIfAbsent implements Store.
func (s *S3) PutIfAbsent(ctx context.Context, key string, content []byte) (bool, error) {
	if err := CheckKey(key); err != nil {
		return false, err
	}
	id, isRepeated, isWritten := newWriteID(), false, false
	err := Retry(ctx, "creating "+key, func(ctx context.Context) error {
		body := &body{reader: bytes.NewReader(content)}
		defer body.end()
		put := s.newPut(key, content, id)
		put.Body, put.IfNoneMatch = body, aws.String("*")
		_, err := s.client.PutObject(ctx, put)
		if !isPreconditionFailure(err) {
			isRepeated, isWritten = true, err == nil
			return classify(err)
		}
		if !isRepeated {
			return nil
		}
		// The answer to an earlier attempt was lost, so the object may be that of this call.
		isWritten, err = s.isWrittenBy(ctx, key, id)
		return err
	})
	return isWritten, err
}

func (s *S3) newPut(key string, content []byte, id string) *s3.PutObjectInput {
	return &s3.PutObjectInput{
		Bucket:        aws.String(s.bucket),
		Key:           aws.String(s.prefix + key),
		Body:          bytes.NewReader(content),
		ContentLength: aws.Int64(int64(len(content))),
		Metadata:      map[string]string{writeIDMetadata: id},
	}
}

func (s *S3) isWrittenBy(ctx context.Context, key, id string) (bool, error) {
	head, err := s.client.HeadObject(ctx, &s3.HeadObjectInput{Bucket: aws.String(s.bucket), Key: aws.String(s.prefix + key)})
	if err = classify(err); errors.Is(err, ErrNotFound) {
		return false, fmt.Errorf("%w: %s was deleted meanwhile", ErrUnavailable, key)
	}
	if err != nil {
		return false, err
	}
	return head.Metadata[writeIDMetadata] == id, nil
}

// Get implements Store.
func (s *S3) Get(ctx context.Context, key string, part Range) ([]byte, error) {
	if err := CheckKey(key); err != nil {
		return nil, err
	}
	var content []byte
	err := Retry(ctx, "getting "+key, func(ctx context.Context) error {
		var err error
		content, err = s.getOnce(ctx, key, part)
		return err
	})
	return content, err
}

func (s *S3) getOnce(ctx context.Context, key string, part Range) ([]byte, error) {
	get := &s3.GetObjectInput{Bucket: aws.String(s.bucket), Key: aws.String(s.prefix + key)}
	if part != (Range{}) {
		last := ""
		if part.Length > 0 {
			last = fmt.Sprint(part.Offset + part.Length - 1)
		}
		get.Range = aws.String(fmt.Sprintf("bytes=%d-%s", part.Offset, last))
	}
	answer, err := s.client.GetObject(ctx, get)
	if err != nil {
		return nil, classify(err)
	}
	defer answer.Body.Close()
	isRanged := strings.HasPrefix(aws.ToString(answer.ContentRange), fmt.Sprintf("bytes %d-", part.Offset))
	if get.Range != nil && !isRanged {
		return nil, errors.New("the server ignores the range of a request; use another server")
	}
	return readBody(answer.Body, aws.ToInt64(answer.ContentLength))
}

func readBody(body io.Reader, length int64) ([]byte, error) {
	if length < 0 || length > MaxBytes {
		return nil, fmt.Errorf("an object of %d bytes is larger than %d", length, MaxBytes)
	}
	content := make([]byte, length)
	if _, err := io.ReadFull(body, content); err != nil {
		return nil, fmt.Errorf("%w: the connection broke: %w", ErrUnavailable, err)
	}
	return content, nil
}

// List implements Store.
func (s *S3) List(ctx context.Context, prefix, after string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		for {
			page, isLast, err := s.listPage(ctx, prefix, after)
			if err != nil {
				yield(Info{}, err)
				return
			}
			for _, info := range page {
				if !yield(info, nil) {
					return
				}
				after = info.Key
			}
			if isLast {
				return
			}
		}
	}
}

func (s *S3) listPage(ctx context.Context, prefix, after string) (page []Info, isLast bool, err error) {
	list := &s3.ListObjectsV2Input{
		Bucket:  aws.String(s.bucket),
		Prefix:  aws.String(s.prefix + prefix),
		MaxKeys: aws.Int32(pageSize),
	}
	if after != "" {
		list.StartAfter = aws.String(s.prefix + after)
	}
	err = Retry(ctx, "listing "+prefix, func(ctx context.Context) error {
		answer, err := s.client.ListObjectsV2(ctx, list)
		if err != nil {
			return classify(err)
		}
		page, isLast = nil, !aws.ToBool(answer.IsTruncated)
		for _, object := range answer.Contents {
			key := strings.TrimPrefix(aws.ToString(object.Key), s.prefix)
			page = append(page, Info{Key: key, Size: aws.ToInt64(object.Size)})
		}
		if len(page) == 0 && !isLast {
			return errors.New("the server sent an empty page that is not the last")
		}
		return nil
	})
	return page, isLast, err
}

// Delete implements Store.
func (s *S3) Delete(ctx context.Context, key string) error {
	if err := CheckKey(key); err != nil {
		return err
	}
	return Retry(ctx, "deleting "+key, func(ctx context.Context) error {
		remove := &s3.DeleteObjectInput{Bucket: aws.String(s.bucket), Key: aws.String(s.prefix + key)}
		_, err := s.client.DeleteObject(ctx, remove)
		if err = classify(err); errors.Is(err, ErrNotFound) {
			return nil
		}
		return err
	})
}

func newWriteID() string {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	return hex.EncodeToString(id[:])
}
