import { pipeline } from 'node:stream/promises';
import { AppError, AuditEntry, AuditHead, AuditQuery, isFinal } from '@coppice/contract';
import type { FastifyReply } from 'fastify';
import { formatEntry } from '../../audit/audit-chain.ts';
import { followEntries, readEntries } from '../../audit/read-entries.ts';
import type { AuditEntryRow } from '../../db/tables.ts';
import { answers } from '../answers.ts';
import type { App } from '../app.ts';
import { toHeaders } from '../delayed-json.ts';
import { endOf } from '../end-with-key.ts';
import { SandboxParams } from '../params.ts';
import type { HttpParts } from '../parts.ts';

/** A client that takes nothing for so long is taken for gone. */
const STALL_MS = 15 * 60_000;
/** The last one keeps a proxy from holding entries back. */
const HEADERS = {
  'content-type': 'application/x-ndjson',
  'cache-control': 'no-store',
  'x-accel-buffering': 'no',
};
const OK = {
  description: 'Entries, one JSON object a line; with `head` one AuditHead.',
  content: { 'application/x-ndjson': { schema: AuditEntry }, 'application/json': { schema: AuditHead } },
};

type Parts = Pick<HttpParts, 'sandboxes' | 'audit' | 'auditStore' | 'openRequests'>;

export function addGetAudit(app: App, { sandboxes, audit, auditStore, openRequests }: Parts): void {
  app.route({
    method: 'GET',
    url: '/v1/runs/:id/audit',
    schema: {
      operationId: 'getAuditLog',
      summary: 'The audit log of a sandbox, also of one that has ended, or what its last entry is',
      description:
        'NDJSON. With `follow` an empty line is sent now and then while nothing happens. How the entries are chained, and ' +
        'how to verify them: docs/reference/audit.md.',
      params: SandboxParams,
      querystring: AuditQuery,
      response: { ...answers(200, AuditHead, [400, 401, 404, 429, 503]), 200: OK },
    },
    handler: async (request, reply) => {
      const { organizationId, params, query } = request;
      const { follow, head, after } = query;
      if (follow && head) throw new AppError('conflicting_options', 'head and follow exclude each other');
      const { id } = await sandboxes.get(organizationId, params.id);
      if (head) {
        const last = await auditStore.findHead(id);
        return reply.send({ seq: last?.seq ?? 0, hmac: last?.hmac ?? null });
      }
      const hasEnded = async () => isFinal((await sandboxes.get(organizationId, id)).status);
      await openRequests.stream(organizationId, async () => {
        const left = new AbortController();
        reply.raw.once('close', () => left.abort());
        const signal = AbortSignal.any([left.signal, endOf(request, openRequests)]);
        const read = { store: auditStore, sandboxId: id, afterSeq: after };
        const pages = follow ? followEntries({ ...read, audit, hasEnded, left: signal }) : readEntries(read);
        await send(pages, reply);
      });
      return reply;
    },
  });
}

async function send(pages: AsyncIterable<AuditEntryRow[]>, reply: FastifyReply): Promise<void> {
  reply.hijack();
  const { raw } = reply;
  const { socket } = raw;
  const stalled = (): void => void raw.destroy();
  socket?.setTimeout(STALL_MS).once('timeout', stalled);
  raw.writeHead(200, { ...toHeaders(reply), ...HEADERS });
  raw.flushHeaders();
  try {
    await pipeline(formatLines(pages), raw);
  } catch (error) {
    // The status is out: the client sees a body that does not end.
    reply.log.debug({ err: error }, 'an audit log was cut off');
    raw.destroy();
  } finally {
    socket?.setTimeout(0).off('timeout', stalled);
  }
}

async function* formatLines(pages: AsyncIterable<AuditEntryRow[]>): AsyncGenerator<string> {
  for await (const page of pages) yield page.length === 0 ? '\n' : page.map(formatEntry).join('');
}
