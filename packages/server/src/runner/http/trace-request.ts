import type http2 from 'node:http2';
import { continueTrace, findSpan, runInSpan } from '../../lib/tracing/tracing.ts';

const SPAN_NAME = 'runner';

/** Answers a request of control, as a span of its trace if control records one. `answer` does not reject. */
export async function traceAnswer(
  stream: http2.ServerHttp2Stream,
  headers: http2.IncomingHttpHeaders,
  answer: () => Promise<void>,
): Promise<void> {
  const span = continueTrace(SPAN_NAME, headers['traceparent']);
  if (span === undefined) return answer();
  try {
    await runInSpan(span, answer);
  } finally {
    const status = Number(stream.sentHeaders?.[':status']);
    span.set(status > 0 ? { 'http.response.status_code': status } : { 'error.type': 'aborted' });
    span.end();
  }
}

interface NamedRequest {
  pattern: string;
  vm: string | undefined;
  agentRoute: string;
  isNetwork: boolean;
}

/** Names the span of the present request by its route. Parts of the agent's routes are few, and are no ids. */
export function nameRequest(method: string, { pattern, vm, agentRoute, isNetwork }: NamedRequest): void {
  const span = findSpan();
  if (span === undefined) return;
  const route = pattern.replace(':route', agentRoute);
  span.rename(`${method} ${route}`);
  span.set({
    'http.request.method': method,
    'http.route': route,
    'network.transport': isNetwork ? 'tcp' : 'unix',
    'network.protocol.name': 'http',
    'network.protocol.version': '2',
    ...(vm === undefined ? {} : { 'coppice.sandbox.id': vm }),
  });
}
