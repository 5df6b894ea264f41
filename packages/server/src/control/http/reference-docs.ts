/** Renders the files of docs/reference that are generated from code. A test keeps them up to date. */
import { ERRORS } from '@coppice/contract';
import { buildIdleServer } from './idle-server.ts';

/** Text of docs/reference/openapi.json. */
export async function renderOpenApi(version: string): Promise<string> {
  const app = await buildIdleServer(version);
  try {
    return `${JSON.stringify(app.swagger(), undefined, 2)}\n`;
  } finally {
    await app.close();
  }
}

/** Text of docs/reference/errors.md. */
export function renderErrors(): string {
  const rows = Object.entries(ERRORS).map(
    ([code, { status, retryable, summary }]) =>
      `| \`${code}\` | ${status} | ${retryable ? 'yes' : 'no'} | ${summary} |`,
  );
  return [
    '# Errors',
    '',
    'The body of every error is `{"error":{"code","message","request_id"}}`, with a `trace_id` if the service records',
    '[traces](../guides/traces.md). The code is stable. The message is for people: it names the field or the step that failed.',
    'A retryable request may succeed later unchanged. After 429 and 503, the',
    'request can be repeated unchanged after the number of seconds in `Retry-After`. After any other status from 500 up,',
    'the request may have been carried out: the service stopped, or a deadline passed, before the answer was ready.',
    '',
    '| code | status | retryable | meaning |',
    '|---|---|---|---|',
    ...rows,
    '',
  ].join('\n');
}
