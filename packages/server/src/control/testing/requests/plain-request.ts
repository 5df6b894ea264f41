import { once } from 'node:events';
import { request, type IncomingMessage } from 'node:http';

export interface PlainAnswer {
  status: number;
  headers: Record<string, string | undefined>;
  body: Buffer;
}

export interface PlainRequest {
  method?: string;
  headers?: Record<string, string>;
}

/** Sends the path as it is: `fetch` would resolve `..`, and would unpack the answer. */
export async function sendPlain(
  address: string,
  path: string,
  { method = 'GET', headers = {} }: PlainRequest = {},
): Promise<PlainAnswer> {
  const { hostname, port } = new URL(address);
  const sent = request({ hostname, port, path, method, headers });
  sent.end();
  const [answer] = (await once(sent, 'response')) as [IncomingMessage];
  const body = Buffer.concat(await answer.toArray());
  return { status: answer.statusCode ?? 0, headers: answer.headers as PlainAnswer['headers'], body };
}
