/** Answers with the audit log of an organization, for API keys and for people who are signed in. */
import { pipeline } from 'node:stream/promises';
import { AuditHead, OrganizationAuditEntry, type OrganizationAuditQuery } from '@coppice/contract';
import type { FastifyReply } from 'fastify';
import { formatOrganizationEntry } from '../../audit/organization/organization-entry.ts';
import type { HttpParts } from '../parts.ts';
import { answers, contents } from './answers.ts';
import { sendBody } from './send-body.ts';

/** An unread log is cut off after the same time as unread streams of output. */
const STALL_MS = 15 * 60_000;
const HEADERS = { 'content-type': 'application/x-ndjson', 'cache-control': 'no-store' };

export const ORGANIZATION_AUDIT_ANSWERS = {
  ...answers(200, AuditHead, [400, 401, 403, 404, 429, 503]),
  200: contents('Entries, one JSON object per line; with `head`, one AuditHead.', {
    'application/x-ndjson': OrganizationAuditEntry,
    'application/json': AuditHead,
  }),
};

export const ORGANIZATION_AUDIT_TEXT =
  'NDJSON: changes of keys, members, teams, secrets, registries, webhooks, limits and credit, and sign-ins of members. ' +
  'docs/reference/audit.md lists the events, and says how the entries are chained and how to verify them.';

export type OrganizationAuditParts = Pick<HttpParts, 'db' | 'organizationAudit' | 'openRequests'>;

export async function sendOrganizationAudit(
  reply: FastifyReply,
  { organizationId, query }: { organizationId: string; query: OrganizationAuditQuery },
  { db, organizationAudit, openRequests }: OrganizationAuditParts,
): Promise<FastifyReply> {
  const { head, after, event, actor } = query;
  if (head) return reply.send(await organizationAudit.findHead(db, organizationId));
  await openRequests.stream(organizationId, async () => {
    const pages = organizationAudit.read(db, { organizationId, after }, { event, actor });
    const body = { status: 200, headers: HEADERS, stallMs: STALL_MS };
    await sendBody(reply, body, (raw) =>
      pipeline(async function* lines() {
        for await (const page of pages) yield page.map(formatOrganizationEntry).join('');
      }, raw),
    );
  });
  return reply;
}
