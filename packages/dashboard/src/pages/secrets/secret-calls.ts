/** Calls about named secrets as code. The value is a variable: a copied text must not contain a secret. */
import { toLiteral, toPython, type writeSnippet } from '../../ui/snippets.ts';

type Call = Parameters<typeof writeSnippet>[0];

export const LIST_SECRETS: Call = {
  method: 'GET',
  path: '/v1/secrets',
  typescript: 'for (const { name, version } of await client.secrets.list()) console.log(name, version);',
  python: 'for secret in client.secrets.list():\n    print(secret.name, secret.version)',
};

export function setSecretCall(name: string): Call {
  return {
    method: 'PUT',
    path: pathOf(name),
    body: { value: 'SECRET_VALUE' },
    typescript: `await client.secrets.set(${toLiteral(name)}, process.env.SECRET_VALUE ?? '');`,
    python: `client.secrets.set(${toPython(name)}, os.environ["SECRET_VALUE"])`,
  };
}

export function deleteSecretCall(name: string): Call {
  return {
    method: 'DELETE',
    path: pathOf(name),
    typescript: `await client.secrets.delete(${toLiteral(name)});`,
    python: `client.secrets.delete(${toPython(name)})`,
  };
}

function pathOf(name: string): string {
  return `/v1/secrets/${encodeURIComponent(name)}`;
}
