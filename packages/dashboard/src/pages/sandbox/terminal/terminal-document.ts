/**
 * The document that a terminal draws with. xterm writes rules into `<style>` elements and sets `style` attributes; the policy
 * of the page allows neither. Rules and styles that a script sets through the object model are allowed, so this document
 * takes those ways instead:
 *
 *     style element ──► an inert element; its text becomes a style sheet of the real document
 *     setAttribute('style', …) ──► element.style
 */

export interface TerminalDocument {
  /** For the option `documentOverride` of the terminal. */
  document: Document;
  /** Removes the style sheets. */
  dispose: () => void;
}

export function createTerminalDocument(real: Document): TerminalDocument {
  const sheets = new Set<CSSStyleSheet>();
  const remove = (sheet: CSSStyleSheet): void => {
    sheets.delete(sheet);
    real.adoptedStyleSheets = real.adoptedStyleSheets.filter((one) => one !== sheet);
  };
  const add = (): CSSStyleSheet => {
    const sheet = new CSSStyleSheet();
    sheets.add(sheet);
    real.adoptedStyleSheets = [...real.adoptedStyleSheets, sheet];
    return sheet;
  };
  const createElement = (name: string): HTMLElement =>
    name === 'style' ? createRules(real, add(), remove) : withStyles(real.createElement(name));
  return {
    document: new Proxy(real, {
      get: (target, property) => {
        if (property === 'createElement') return createElement;
        const value: unknown = Reflect.get(target, property);
        return typeof value === 'function' ? (value.bind(target) as unknown) : value;
      },
    }),
    dispose: () => {
      for (const sheet of sheets) remove(sheet);
    },
  };
}

/** Returns an element whose text becomes the rules of a style sheet, until it is removed. */
function createRules(
  real: Document,
  sheet: CSSStyleSheet,
  remove: (sheet: CSSStyleSheet) => void,
): HTMLElement {
  const element = real.createElement('span');
  element.hidden = true;
  let rules = '';
  Object.defineProperty(element, 'textContent', {
    get: () => rules,
    set: (text: string) => {
      rules = text;
      sheet.replaceSync(text);
    },
  });
  Object.defineProperty(element, 'remove', {
    value: () => {
      remove(sheet);
      Element.prototype.remove.call(element);
    },
  });
  return element;
}

const SET_ATTRIBUTE = {
  value(this: HTMLElement, name: string, value: string): void {
    if (name === 'style') this.style.cssText = value;
    else Element.prototype.setAttribute.call(this, name, value);
  },
};

function withStyles(element: HTMLElement): HTMLElement {
  return Object.defineProperty(element, 'setAttribute', SET_ATTRIBUTE);
}
