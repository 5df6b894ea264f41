/** The services behind the routes below `/account`. */
import type { Logger } from 'pino';
import type { OrganizationAudit } from '../audit/organization/organization-audit.ts';
import type { Database } from '../db/database.ts';
import type { Share } from '../limits/share.ts';
import { Access } from './organizations/access.ts';
import { Invitations } from './organizations/invitations.ts';
import { FailedSignIns } from './sign-in/failed-sign-ins.ts';
import { LoginSessions } from './sign-in/login-sessions.ts';
import { Members } from './organizations/members.ts';
import { Organizations } from './organizations/organizations.ts';
import { People, type SignUpMode } from './organizations/people.ts';
import { SignInLimits } from './sign-in/sign-in-limits.ts';
import { TeamKeys } from './organizations/team-keys.ts';
import { Teams } from './organizations/teams.ts';

export interface Accounts {
  people: People;
  sessions: LoginSessions;
  access: Access;
  organizations: Organizations;
  members: Members;
  invitations: Invitations;
  teams: Teams;
  keys: TeamKeys;
}

export interface AccountsOptions {
  db: Database;
  region: string;
  signUp: SignUpMode;
  audit: OrganizationAudit;
  share: Share;
  log: Pick<Logger, 'warn'>;
  now?: () => number;
}

/** Use the stack of the service: entries of failed sign-ins may still be written when it stops. */
export function buildAccounts(
  { db, region, signUp, audit, share, log, now = Date.now }: AccountsOptions,
  stack: AsyncDisposableStack,
): Accounts {
  const organizations = new Organizations({ db, region, signUp, audit });
  const invitations = new Invitations({ db, audit, now });
  const limits = new SignInLimits(now, share);
  const failures = stack.use(new FailedSignIns({ db, audit, log, now }));
  return {
    people: new People({ db, signUp, limits, audit, failures, organizations, invitations }),
    sessions: new LoginSessions({ db, audit, now }),
    access: new Access(db),
    organizations,
    members: new Members(db, audit),
    invitations,
    teams: new Teams(db, audit),
    keys: new TeamKeys({ db, region, audit }),
  };
}
