/** Targets of requests to the credential proxy: `/proxy/<service>/<path>?<query>`. */
import { SERVICE_NAME } from '@coppice/contract';
import { MAX_PATH_BYTES } from './normalize-path.ts';
import { accept, refuse, type Checked } from './refusal.ts';

const MAX_TARGET_BYTES = 2 * MAX_PATH_BYTES;
const TARGET = /^\/proxy\/(?<service>[^/?]+)(?<path>\/[^?]*)?(?:\?(?<query>.*))?$/su;

export interface ProxyTarget {
  service: string;
  /** As it was sent; empty or beginning with a slash. */
  rawPath: string;
  /** Without the question mark; undefined if there is none. */
  rawQuery: string | undefined;
}

/** Only the origin form: the absolute one could name another host. */
export function parseProxyTarget(target: string): Checked<ProxyTarget> {
  if (target.length > MAX_TARGET_BYTES) return refuse('path-too-long');
  const groups = TARGET.exec(target)?.groups;
  const service = groups?.['service'];
  if (service === undefined) return refuse('target');
  if (!SERVICE_NAME.test(service)) return refuse('service');
  return accept({ service, rawPath: groups?.['path'] ?? '', rawQuery: groups?.['query'] });
}
