/** Answers a connection whose request cannot be read or is not accepted, and closes it. */
import { STATUS_CODES } from 'node:http';
import type { Socket } from 'node:net';
import { formatBody, RETRY_AFTER_S, type ErrorAnswer } from '../request/answer-error.ts';

const TOO_MANY: ErrorAnswer = {
  status: 503,
  code: 'too_many_connections',
  message: 'The sandbox has too many connections to the credential proxy.',
};
const BROKEN: ErrorAnswer = { status: 400, code: 'malformed', message: 'This is not HTTP/1.1.' };
const BROKEN_BY_CODE: Readonly<Record<string, ErrorAnswer>> = {
  HPE_HEADER_OVERFLOW: {
    status: 431,
    code: 'headers_too_large',
    message: 'The headers are too large for the credential proxy.',
  },
  ERR_HTTP_REQUEST_TIMEOUT: {
    status: 408,
    code: 'head_timeout',
    message: 'The request did not arrive in time.',
  },
};

export function answerTooMany(socket: Socket): void {
  socket.end(formatError(TOO_MANY));
  socket.destroySoon();
}

/**
 * Answers a parser error. During the answer to another request no error can be sent, so the connection is destroyed.
 */
export function answerBroken(error: NodeJS.ErrnoException, socket: Socket, isBusy: boolean): void {
  if (isBusy || !socket.writable || error.code === 'ECONNRESET') {
    socket.destroy();
    return;
  }
  socket.end(formatError(BROKEN_BY_CODE[error.code ?? ''] ?? BROKEN));
  socket.destroySoon();
}

function formatError(answer: ErrorAnswer): string {
  const body = formatBody(answer);
  const lines = [
    `HTTP/1.1 ${answer.status} ${STATUS_CODES[answer.status] ?? 'Error'}`,
    'connection: close',
    'content-type: application/json',
    `content-length: ${Buffer.byteLength(body)}`,
    ...(answer.status === TOO_MANY.status ? [`retry-after: ${RETRY_AFTER_S}`] : []),
  ];
  return `${lines.join('\r\n')}\r\n\r\n${body}`;
}
