import { STATUS_CODES } from 'node:http';
import type { Duplex } from 'node:stream';
import { AppError } from '@coppice/contract';
import { newId } from '../../../lib/new-id.ts';
import { buildErrorBody } from './error-mapper.ts';

/** Answers input that is not HTTP: there is no request, only a socket. */
export function answerBrokenHttp(error: NodeJS.ErrnoException, socket: Duplex): void {
  if (error.code === 'ECONNRESET' || !socket.writable) {
    socket.destroy();
    return;
  }
  const fault =
    error.code === 'HPE_HEADER_OVERFLOW'
      ? new AppError('headers_too_large', 'the request headers are over 16 KiB')
      : new AppError('invalid_request', 'this is not an HTTP request');
  const body = JSON.stringify(buildErrorBody(fault, { id: newRequestId() }));
  const head = `HTTP/1.1 ${fault.status} ${STATUS_CODES[fault.status]}`;
  socket.end(
    `${head}\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\nconnection: close\r\n\r\n${body}`,
  );
}

export function newRequestId(): string {
  return newId('req');
}
