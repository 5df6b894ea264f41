/** The audit log of an organization, and the secrets that verify it. */
import { AuditSecretRecord, OrganizationAuditQuery, ShownAuditSecret } from '@coppice/contract';
import { z } from 'zod';
import { answers } from '../../answers/answers.ts';
import {
  ORGANIZATION_AUDIT_ANSWERS,
  ORGANIZATION_AUDIT_TEXT,
  sendOrganizationAudit,
  type OrganizationAuditParts,
} from '../../answers/organization-audit.ts';
import type { App } from '../../app.ts';
import { NoBody } from '../../answers/no-body.ts';
import { actorOf } from '../../requests/actor-of.ts';
import { ACCOUNT, OrganizationParams, OrganizationSecretParams } from '../session/account-schema.ts';

export function addOrganizationAudit(app: App, parts: OrganizationAuditParts): void {
  addGetLog(app, parts);
  addListSecrets(app, parts);
  addGetSecret(app, parts);
  addRotateSecret(app, parts);
}

function addGetLog(app: App, parts: OrganizationAuditParts): void {
  app.route({
    method: 'GET',
    url: '/account/organizations/:organization/audit',
    config: { audience: 'owner' },
    schema: {
      ...ACCOUNT,
      operationId: 'getOrganizationAuditLog',
      summary: 'Get the audit log of an organization, or only its head',
      description: ORGANIZATION_AUDIT_TEXT,
      params: OrganizationParams,
      querystring: OrganizationAuditQuery,
      response: ORGANIZATION_AUDIT_ANSWERS,
    },
    handler: ({ organizationId, query }, reply) =>
      sendOrganizationAudit(reply, { organizationId, query }, parts),
  });
}

function addListSecrets(app: App, { db, organizationAudit }: OrganizationAuditParts): void {
  app.route({
    method: 'GET',
    url: '/account/organizations/:organization/audit-secrets',
    config: { audience: 'owner' },
    schema: {
      ...ACCOUNT,
      operationId: 'listOrganizationAuditSecrets',
      summary: "List the ids of the secrets of an organization's audit log, newest first",
      params: OrganizationParams,
      response: answers(200, z.array(AuditSecretRecord), [401, 403, 404, 503]),
    },
    handler: async ({ organizationId }) => {
      const secrets = await organizationAudit.listSecrets(db, organizationId);
      return secrets.map(({ id, createdAt }) => ({ id, created_at: new Date(createdAt).toISOString() }));
    },
  });
}

function addGetSecret(app: App, { db, organizationAudit }: OrganizationAuditParts): void {
  app.route({
    method: 'GET',
    url: '/account/organizations/:organization/audit-secrets/:secret',
    config: { audience: 'owner' },
    schema: {
      ...ACCOUNT,
      operationId: 'getOrganizationAuditSecret',
      summary: "Get a secret that verifies an organization's audit log; the log records it",
      params: OrganizationSecretParams,
      response: answers(200, ShownAuditSecret, [401, 403, 404, 409, 429, 503]),
    },
    handler: async (request) => {
      const { organizationId, params } = request;
      const place = { organizationId, id: params.secret };
      const { id, secret } = await organizationAudit.reveal(db, place, actorOf(request));
      return { id, secret: secret.reveal() };
    },
  });
}

function addRotateSecret(app: App, { db, organizationAudit }: OrganizationAuditParts): void {
  app.route({
    method: 'POST',
    url: '/account/organizations/:organization/audit-secrets',
    config: { audience: 'owner' },
    schema: {
      ...ACCOUNT,
      operationId: 'rotateOrganizationAuditSecret',
      summary: "Create a new secret for an organization's audit log; it keys the entries from now on",
      params: OrganizationParams,
      body: NoBody,
      response: answers(201, ShownAuditSecret, [400, 401, 403, 404, 429, 503]),
    },
    handler: async (request, reply) => {
      const { id, secret } = await organizationAudit.rotate(db, request.organizationId, actorOf(request));
      return reply.code(201).send({ id, secret: secret.reveal() });
    },
  });
}
