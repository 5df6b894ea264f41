import type { Span } from '../../lib/tracing/span.ts';
import { findSpan, traced } from '../../lib/tracing/tracing.ts';

/** The parts of a request to the runner that its span shows. */
interface TracedCall<T> {
  method: string;
  path: string;
  transport: 'unix' | 'tcp';
  statusOf: (answer: T) => number;
}

/** Parts of paths that stand after these ones and are ids. */
const IDS: ReadonlyMap<string, readonly string[]> = new Map([
  ['vms', [':vm']],
  ['captures', [':capture']],
  ['disks', [':org', ':disk']],
  ['snapshots', [':version']],
]);

/** Records a request to the runner, if it is for a traced request, up to the head of its answer. */
export async function traceCall<T>(
  call: TracedCall<T>,
  send: (span: Span | undefined) => Promise<T>,
): Promise<T> {
  if (findSpan() === undefined) return send(undefined);
  const { method, path, transport, statusOf } = call;
  const template = findTemplate(path);
  const attributes = {
    'http.request.method': method,
    'url.template': template,
    'network.transport': transport,
    'network.protocol.name': 'http',
    'network.protocol.version': '2',
  };
  const work = async (span: Span | undefined): Promise<T> => {
    const answer = await send(span);
    span?.set({ 'http.response.status_code': statusOf(answer) });
    return answer;
  };
  return traced(`${method} ${template}`, work, { kind: 'client', attributes });
}

/** Returns the path without ids and without the query, which has names of files: the pattern that the runner matches. */
export function findTemplate(path: string): string {
  const [pathname = ''] = path.split('?', 1);
  let ids: string[] = [];
  const parts = pathname.split('/').map((part) => {
    const isLiteral = ids.length === 0 || (ids[0] === ':disk' && part === 'collect');
    if (!isLiteral) return ids.shift();
    ids = [...(IDS.get(part) ?? [])];
    return part;
  });
  return parts.join('/');
}
