/** The signed-in owner of the first organization: adds members, makes keys, and reads audit secrets. */
import type { LabService } from './lab-service.ts';
import type { Secrets } from './secrets.ts';

const EMAIL = 'owner@lab.example';

interface Account {
  user: { id: string };
  organizations: { id: string; teams: { id: string }[] }[];
}

/** Returns the path of the first organization's first team. */
function findTeam({ organizations: [organization] }: Account): string {
  return `/account/organizations/${organization?.id}/teams/${organization?.teams[0]?.id}`;
}

export class Owner {
  readonly #service: LabService;
  #cookie = '';
  /** Path of the first organization's first team. */
  team = '';

  private constructor(service: LabService) {
    this.#service = service;
  }

  /** Signs in, and signs up first if the account does not exist. */
  static async signIn(service: LabService, { invitation, password }: Secrets): Promise<Owner> {
    const owner = new Owner(service);
    const login = { email: EMAIL, password };
    const known = await owner.#send('POST', '/account/sign-in', login);
    const account: unknown = known.ok
      ? await known.json()
      : await owner.ask('POST', '/account/sign-up', { ...login, name: 'Owner', invitation });
    owner.team = findTeam(account as Account);
    return owner;
  }

  /** Sends a request and returns the answer. Throws if the status is not a success. */
  async ask(method: string, path: string, body?: object): Promise<Record<string, string>> {
    const answer = await this.#send(method, path, body);
    const text = await answer.text();
    if (!answer.ok) throw new Error(`${method} ${path} answered ${answer.status}: ${text}`);
    return text === '' ? {} : (JSON.parse(text) as Record<string, string>);
  }

  async #send(method: string, path: string, body?: object): Promise<Response> {
    const answer = await fetch(`${this.#service.address}${path}`, {
      method,
      headers: {
        origin: this.#service.address,
        cookie: this.#cookie,
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
      },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    const [cookie] = answer.headers.getSetCookie();
    if (cookie !== undefined) this.#cookie = cookie.split(';', 1)[0] ?? '';
    return answer;
  }

  /** Adds a member with an account to the organization, and returns the password. */
  async addMember(email: string): Promise<string> {
    const organization = this.team.replace(/\/teams\/.*$/u, '');
    const { invitation } = await this.ask('POST', `${organization}/invitations`, { role: 'member', email });
    const password = `password of ${email.split('@', 1)[0]}`;
    const person = new Owner(this.#service);
    await person.ask('POST', '/account/sign-up', { email, name: 'Member', password, invitation });
    return password;
  }

  /** Throws unless the account can sign in. */
  async assertAccount(email: string, password: string): Promise<void> {
    await new Owner(this.#service).ask('POST', '/account/sign-in', { email, password });
  }

  async makeKey(name: string): Promise<{ id: string; key: string }> {
    const { id, key } = await this.ask('POST', `${this.team}/keys`, { name });
    if (id === undefined || key === undefined) throw new Error('the new API key is missing in the answer');
    return { id, key };
  }

  async revokeKey(id: string): Promise<void> {
    await this.ask('DELETE', `${this.team}/keys/${id}`);
  }

  /** Returns the audit secret of the sandboxes whose record has this id as `auditKeyId`. */
  async readAuditSecret(id: string): Promise<string> {
    const { secret } = await this.ask('GET', `${this.team}/audit-secrets/${id}`);
    if (secret === undefined) throw new Error(`the audit secret ${id} is missing in the answer`);
    return secret;
  }
}
