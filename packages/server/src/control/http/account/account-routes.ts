/**
 * All below `/account`: for people who are signed in, by cookie. An API key counts for nothing here, as a cookie does below
 * `/v1`. In their order:
 *
 *   own origin, JSON ─► session ─► body, path ─► membership and role (what the route's `audience` says) ─► endpoint
 */
import { AppError } from '@coppice/contract';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { App } from '../app.ts';
import type { HttpParts } from '../parts.ts';
import { addAcceptInvitation } from './accept-invitation.ts';
import { addAddTeamMember } from './add-team-member.ts';
import { addChangePassword } from './change-password.ts';
import { addChangeRole } from './change-role.ts';
import { addCreateApiKey } from './create-api-key.ts';
import { addCreateInvitation } from './create-invitation.ts';
import { addCreateOrganization } from './create-organization.ts';
import { addCreateTeam } from './create-team.ts';
import { addEndSession } from './end-session.ts';
import { addGetAccount } from './get-account.ts';
import { addGetAuditSecret } from './get-audit-secret.ts';
import { addGetOrganization } from './get-organization.ts';
import { addListApiKeys } from './list-api-keys.ts';
import { addListAuditSecrets } from './list-audit-secrets.ts';
import { addListInvitations } from './list-invitations.ts';
import { addListMembers } from './list-members.ts';
import { addListSessions } from './list-sessions.ts';
import { addListTeamMembers } from './list-team-members.ts';
import { addListTeams } from './list-teams.ts';
import { assertJson, assertOwnOrigin } from './own-origin.ts';
import { addRemoveMember } from './remove-member.ts';
import { addRemoveTeamMember } from './remove-team-member.ts';
import { addRenameOrganization } from './rename-organization.ts';
import { addRenameTeam } from './rename-team.ts';
import { addRevokeApiKey } from './revoke-api-key.ts';
import { addRevokeInvitation } from './revoke-invitation.ts';
import { addRotateApiKey } from './rotate-api-key.ts';
import { addRotateAuditSecret } from './rotate-audit-secret.ts';
import { readSessionToken, setSessionCookie } from './session-cookie.ts';
import { addSignIn } from './sign-in.ts';
import { addSignOut } from './sign-out.ts';
import { addSignUp } from './sign-up.ts';

export async function addAccountRoutes(app: App, parts: HttpParts): Promise<void> {
  app.addHook('onRequest', async (request, reply) => {
    reply.header('cache-control', 'no-store');
    assertOwnOrigin(request);
    assertJson(request);
    parts.assertServing();
  });
  addSignUp(app, parts);
  addSignIn(app, parts);
  await app.register(async (signedIn: App) => addSignedIn(signedIn, parts));
}

async function addSignedIn(app: App, parts: HttpParts): Promise<void> {
  app.addHook('onRequest', (request, reply) => requireSession(request, reply, parts));
  addSignOut(app, parts);
  addGetAccount(app, parts);
  addChangePassword(app, parts);
  addListSessions(app, parts);
  addEndSession(app, parts);
  addAcceptInvitation(app, parts);
  addCreateOrganization(app, parts);
  await app.register(async (organization: App) => addOrganization(organization, parts));
}

function addOrganization(app: App, parts: HttpParts): void {
  app.addHook('onRoute', ({ url, config }) => {
    if (config?.audience === undefined) throw new Error(`${url} does not say who it is for`);
  });
  app.addHook('preHandler', (request) => checkAccess(request, parts));
  addGetOrganization(app, parts);
  addRenameOrganization(app, parts);
  addListMembers(app, parts);
  addChangeRole(app, parts);
  addRemoveMember(app, parts);
  addCreateInvitation(app, parts);
  addListInvitations(app, parts);
  addRevokeInvitation(app, parts);
  addCreateTeam(app, parts);
  addListTeams(app, parts);
  addRenameTeam(app, parts);
  addListTeamMembers(app, parts);
  addAddTeamMember(app, parts);
  addRemoveTeamMember(app, parts);
  addCreateApiKey(app, parts);
  addListApiKeys(app, parts);
  addRevokeApiKey(app, parts);
  addRotateApiKey(app, parts);
  addListAuditSecrets(app, parts);
  addGetAuditSecret(app, parts);
  addRotateAuditSecret(app, parts);
}

async function requireSession(
  request: FastifyRequest,
  reply: FastifyReply,
  { accounts }: Pick<HttpParts, 'accounts'>,
): Promise<void> {
  const token = readSessionToken(request);
  const session = token === undefined ? undefined : await accounts.sessions.use(token);
  if (token === undefined || session === undefined)
    throw new AppError(
      'unauthorized',
      'nobody is signed in: POST /account/sign-in first; API keys do not count here',
    );
  request.userId = session.userId;
  request.sessionId = session.id;
  if (session.isExtended) setSessionCookie(reply, { token, expiresAt: session.expiresAt });
}

async function checkAccess(
  request: FastifyRequest,
  { accounts }: Pick<HttpParts, 'accounts'>,
): Promise<void> {
  const { organization = '', team } = request.params as { organization?: string; team?: string };
  const { audience = 'owner' } = request.routeOptions.config;
  request.role = await accounts.access.check(
    request.userId,
    { organizationId: organization, teamId: team },
    audience,
  );
  request.organizationId = organization;
  request.teamId = team ?? '';
}
