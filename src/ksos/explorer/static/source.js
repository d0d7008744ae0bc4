"use strict";

/* Where the page's answers come from: the process that serves it. The site's page has another file of this name, with fits made beforehand. */
const ksosSource = (() => {
  const tab = Array.from(crypto.getRandomValues(new Uint8Array(12)), (b) => b.toString(16).padStart(2, "0")).join("");

  async function ask(question, asked = {}) {
    let response;
    try {
      response = await fetch(question, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ tab, ...asked }) });
    } catch {
      throw new Error("The server does not answer. Was it stopped? Start ksos explore again and open the new address.");
    }
    if (!response.ok) throw new Error((await response.json().catch(() => ({}))).error || `the server answered ${response.status}`);
    return response;
  }

  return {
    sets: [], // there is one set of samples
    answer: async (question, asked) => (await ask(question, asked)).json(),
    model: async () => (await ask("model")).blob(),
  };
})();
