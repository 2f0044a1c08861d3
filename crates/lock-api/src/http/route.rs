//! One address with its methods. A method is served only together with what its callers need: there is no other way to add
//! one, so none is forgotten.

use axum::handler::Handler;
use axum::http::Method;
use axum::routing::{MethodFilter, MethodRouter};

use super::Shared;
use super::door::Needs;
use super::passage::Guarded;

/// Handlers of one address.
pub struct Route {
    address: &'static str,
    methods: MethodRouter<Shared>,
    served: Vec<(Method, Needs)>,
}

impl Route {
    /// At first nothing is.
    pub fn at(address: &'static str) -> Self {
        Self {
            address,
            methods: MethodRouter::new(),
            served: Vec::new(),
        }
    }

    /// `GET`, and `HEAD`.
    pub fn get<H: Handler<T, Shared>, T: 'static>(self, needs: Needs, handler: H) -> Self {
        self.on(MethodFilter::GET, Method::GET, needs, handler)
    }

    /// `POST`.
    pub fn post<H: Handler<T, Shared>, T: 'static>(self, needs: Needs, handler: H) -> Self {
        self.on(MethodFilter::POST, Method::POST, needs, handler)
    }

    /// `PUT`.
    pub fn put<H: Handler<T, Shared>, T: 'static>(self, needs: Needs, handler: H) -> Self {
        self.on(MethodFilter::PUT, Method::PUT, needs, handler)
    }

    /// `DELETE`.
    pub fn delete<H: Handler<T, Shared>, T: 'static>(self, needs: Needs, handler: H) -> Self {
        self.on(MethodFilter::DELETE, Method::DELETE, needs, handler)
    }

    fn on<H: Handler<T, Shared>, T: 'static>(
        mut self,
        filter: MethodFilter,
        method: Method,
        needs: Needs,
        handler: H,
    ) -> Self {
        self.methods = self.methods.on(filter, Guarded { needs, handler });
        self.served.push((method, needs));
        self
    }

    /// Adds a handler for all other methods, where the router does not know which exist. It has no requirement, so it must
    /// reveal nothing else.
    pub fn otherwise<H: Handler<T, Shared>, T: 'static>(mut self, handler: H) -> Self {
        let needs = Needs::Nothing;
        self.methods = self.methods.fallback(Guarded { needs, handler });
        self
    }

    /// The address, as axum writes it.
    pub fn address(&self) -> &'static str {
        self.address
    }

    /// The methods that are served, `HEAD` beside `GET` not told, and what each of them needs.
    pub fn served(&self) -> impl Iterator<Item = &(Method, Needs)> {
        self.served.iter()
    }

    /// The methods, each behind its door.
    pub fn methods(self) -> MethodRouter<Shared> {
        self.methods
    }
}
