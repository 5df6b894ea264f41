/** Schema parts that account routes share, and the parameters of their paths. */
import { z } from 'zod';

export const ACCOUNT = { tags: ['account'], security: [{ session: [] }] };
/** For routes that begin a session. */
export const NO_SESSION = { tags: ['account'], security: [] };

/** Accepts an id of any shape: one that does not exist is 404, not 400. */
const Id = z.string().max(200);

export const SessionParams = z.strictObject({ session: Id });
export const OrganizationParams = z.strictObject({ organization: Id });
export const OrganizationSecretParams = OrganizationParams.extend({ secret: Id });
export const MemberParams = OrganizationParams.extend({ member: Id });
export const InvitationParams = OrganizationParams.extend({ invitation: Id });
export const TeamParams = OrganizationParams.extend({ team: Id });
export const TeamMemberParams = TeamParams.extend({ member: Id });
export const KeyParams = TeamParams.extend({ key: Id });
export const AuditSecretParams = TeamParams.extend({ secret: Id });
