/** Parses targets of requests to the credential proxy: `/proxy/<service>/<path>?<query>`. */
import { SERVICE_NAME } from '@coppice/contract';
import { MAX_PATH_BYTES } from './normalize-path.ts';
import { accept, refuse, type Checked } from './refusal.ts';

const MAX_TARGET_BYTES = 2 * MAX_PATH_BYTES;
const TARGET = /^\/proxy\/(?<service>[^/?]+)(?<path>\/[^?]*)?(?:\?(?<query>.*))?$/su;

export interface ProxyTarget {
  service: string;
  /** The path as received. It is empty or starts with a slash. */
  rawPath: string;
  /** The query without the question mark. undefined if there is none. */
  rawQuery: string | undefined;
}

/** Parses a target. It accepts only the origin form, because the absolute form could name another host. */
export function parseProxyTarget(target: string): Checked<ProxyTarget> {
  if (target.length > MAX_TARGET_BYTES) return refuse('path-too-long');
  const groups = TARGET.exec(target)?.groups;
  const service = groups?.['service'];
  if (service === undefined) return refuse('target');
  if (!SERVICE_NAME.test(service)) return refuse('service');
  return accept({ service, rawPath: groups?.['path'] ?? '', rawQuery: groups?.['query'] });
}
