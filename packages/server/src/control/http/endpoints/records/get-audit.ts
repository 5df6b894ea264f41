import { pipeline } from 'node:stream/promises';
import { AppError, AuditEntry, AuditHead, AuditQuery, isFinal } from '@coppice/contract';
import { formatEntry } from '../../../audit/audit-chain.ts';
import { followEntries, readEntries } from '../../../audit/read-entries.ts';
import type { AuditEntryRow } from '../../../audit/audit-tables.ts';
import { answers, contents } from '../../answers/answers.ts';
import { whenLeft } from '../../answers/when-left.ts';
import type { App } from '../../app.ts';
import { endOf } from '../../access/end-with-key.ts';
import { SandboxParams } from '../../requests/params.ts';
import type { HttpParts } from '../../parts.ts';
import { sendBody } from '../../answers/send-body.ts';

/** An unread log is cut off after the same time as unread streams of output. */
const STALL_MS = 15 * 60_000;
/** The last one keeps proxies from buffering entries. */
const HEADERS = {
  'content-type': 'application/x-ndjson',
  'cache-control': 'no-store',
  'x-accel-buffering': 'no',
};
const OK = contents('Entries, one JSON object per line; with `head`, one AuditHead.', {
  'application/x-ndjson': AuditEntry,
  'application/json': AuditHead,
});

type Parts = Pick<HttpParts, 'sandboxes' | 'audit' | 'auditStore' | 'openRequests'>;

export function addGetAudit(app: App, { sandboxes, audit, auditStore, openRequests }: Parts): void {
  app.route({
    method: 'GET',
    url: '/v1/runs/:id/audit',
    config: { access: 'read' },
    schema: {
      operationId: 'getAuditLog',
      summary: 'Get the audit log of a sandbox, even after its end, or only its head',
      description:
        'NDJSON. With `follow`, an empty line is sent now and then while nothing happens. docs/reference/audit.md says how ' +
        'the entries are chained and how to verify them.',
      params: SandboxParams,
      querystring: AuditQuery,
      response: { ...answers(200, AuditHead, [400, 401, 404, 429, 503]), 200: OK },
    },
    handler: async (request, reply) => {
      const { organizationId, reach, params, query } = request;
      const { follow, head, after } = query;
      if (follow && head) throw new AppError('conflicting_options', 'head and follow exclude each other');
      const { id } = await sandboxes.get(reach, params.id);
      if (head) {
        const last = await auditStore.findHead(id);
        return reply.send({ seq: last?.seq ?? 0, hmac: last?.hmac ?? null });
      }
      const hasEnded = async () => isFinal((await sandboxes.get(reach, id)).status);
      await openRequests.stream(organizationId, async () => {
        const signal = AbortSignal.any([whenLeft(reply), endOf(request, openRequests)]);
        const read = { store: auditStore, sandboxId: id, afterSeq: after };
        const pages = follow ? followEntries({ ...read, audit, hasEnded, left: signal }) : readEntries(read);
        const body = { status: 200, headers: HEADERS, stallMs: STALL_MS };
        await sendBody(reply, body, (raw) => pipeline(formatLines(pages), raw));
      });
      return reply;
    },
  });
}

async function* formatLines(pages: AsyncIterable<AuditEntryRow[]>): AsyncGenerator<string> {
  for await (const page of pages) yield page.length === 0 ? '\n' : page.map(formatEntry).join('');
}
